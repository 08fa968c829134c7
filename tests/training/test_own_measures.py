"""Metrics and observations that a user registers: keys of results and curves, without training again, resumable."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.components import discovery
from harness.components.registries import BENCHMARKS
from harness.errors import InvalidConfiguration, UnknownName
from harness.study.configuration import Observe
from harness.study.judging import selected_architectures
from harness.study.layout import Column, Row
from harness.study.study import Study
from harness.study.trial import Trial
from harness.training.trial import run_trial
from harness.work.plan import make_plan
from tests.stores.test_checkpoints import Stop, checkpoint, seed_globals
from tests.test_documents import example_files
from tests.toy import toy_config

ASKED: dict[str, Any] = {"rank": {"metrics": ["regret"], "bins": 5}, "observe": {"own": ["weight-norm"]}}


@pytest.fixture
def measured(toy_project: Path) -> Iterator[Path]:
    """The toy's folder with the measures of the documents in it."""
    (toy_project / "methods").mkdir(exist_ok=True)
    (toy_project / "methods" / "measures.py").write_text(example_files()["methods/measures.py"])
    with discovery.fresh():
        yield toy_project


def test_they_are_keys_and_curves_of_the_result(measured: Path) -> None:
    config = toy_config(**ASKED)
    outcome = run_trial(config)
    benchmark = BENCHMARKS.get("toy")()
    truth = benchmark.accuracies("toy")
    chosen = selected_architectures(benchmark, "toy", config.rank)
    best = chosen[int(np.argmax([outcome.predictions[one].accuracy for one in chosen]))]
    true = [truth[benchmark.space.index(one)] for one in chosen]
    assert outcome.result["regret"] == pytest.approx(max(true) - truth[benchmark.space.index(best)])
    curve = outcome.result["observed"]["weight_norm"]
    assert [step for step, _ in curve] == [1, 2, 3, 4] and all(value > 0 for _, value in curve)
    plain = run_trial(toy_config(rank={"bins": 5})).result
    assert {key: outcome.result[key] for key in plain} == plain | {"observed": outcome.result["observed"]}


def test_they_are_no_part_of_the_trial(measured: Path) -> None:
    plain, asked = toy_config(), toy_config(**ASKED)
    assert Trial(plain).key == Trial(asked).key and Trial(plain).ranking_key != Trial(asked).ranking_key
    assert "metrics" not in plain.json()["rank"] and "own" not in plain.json()["observe"]
    assert Observe(own=("weight-norm",)).union(Observe()).own == ("weight-norm",)
    before = Trial(asked).ranking_key
    with (measured / "methods" / "measures.py").open("a") as file:
        file.write("\n# a comment has no meaning\n")
    with discovery.fresh():
        assert Trial(toy_config(**ASKED)).ranking_key == before
    with (measured / "methods" / "measures.py").open("a") as file:
        file.write("\nOTHER = 'code may have another meaning'\n")
    with discovery.fresh():
        assert Trial(toy_config(**ASKED)).ranking_key != before


def test_an_interrupted_trial_observes_the_same(measured: Path, tmp_path: Path) -> None:
    config = toy_config(**ASKED)
    seed_globals()
    whole = run_trial(config).result
    attempts, resumed = 0, None
    while resumed is None and attempts < 50:
        attempts += 1
        seed_globals()
        with suppress(Stop):
            resumed = run_trial(config, checkpoint=checkpoint(tmp_path, config, 3)).result
    assert attempts > 2 and json.dumps(resumed) == json.dumps(whole)


def test_unknown_and_taken_names_are_refused(measured: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'regret'"):
        toy_config(rank={"metrics": ["regre"]})
    with pytest.raises(UnknownName, match="observation"):
        toy_config(observe={"own": ["norm"]})
    toy = {"space": "toy", "dataset": "toy", "rank.images": 50, "rank.metrics": ["regret"], "benchmark": None}
    study = Study("mine", "Mine", [Row({"": "row"}, toy)], [Column("Regret", "regret")])
    with pytest.raises(InvalidConfiguration, match="rank.metrics needs a table of truth"):
        make_plan([study], "tiny", [], seeds=1)
