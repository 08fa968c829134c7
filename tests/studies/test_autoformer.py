"""The study and presets of the AutoFormer space: what they ask for, and what a run of them shows."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.components.preset import get_preset
from harness.components.registries import SPACES
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.work.plan import make_plan
from tests.jobs import job


def configurations(preset: str) -> list[Any]:
    (study,) = find_studies("autoformer_space")
    return [one.trial.config for one in expand(study, get_preset(preset, "autoformer"), seeds=1)]


def test_the_paper_preset_is_autoformers_recipe() -> None:
    plain, ours = configurations("paper")[:2]
    assert (plain.space, plain.dataset, plain.method.name, plain.optimiser.name) == (
        *("autoformer", "imagenet", "autoformer", "adamw"),
    )
    assert (plain.optimiser.learning_rate, plain.optimiser.weight_decay, plain.optimiser.clip) == (1e-3, 0.05, None)
    assert (plain.train.epochs, plain.train.batch_size, plain.train.warmup_epochs) == (500, 1024, 20)
    assert [one.name for one in plain.train.augment] == [
        *("resized-crop", "flip", "timm-rand-augment", "erasing", "mixing"),
    ]
    assert plain.train.order.name == "repeated" and plain.train.label_smoothing == 0.1
    assert (plain.schedule.name, plain.schedule.final, plain.clusters.name) == ("cosine", 0.01, "none")
    assert (ours.schedule.name, ours.schedule.final, ours.clusters.name) == ("calr", 0.01, "first-layer")
    assert (plain.search.population, plain.search.generations, plain.search.probability) == (50, 20, 0.2)
    limits = [config.search.limits["parameters"] for config in configurations("paper")[::2]]
    assert limits == [[None, 6_000_000], [None, 7_500_000], [None, 9_000_000]]


def test_the_reduced_limits_lie_where_the_papers_do() -> None:
    def shares(space: str, preset: str) -> list[float]:
        least, greatest = SPACES.get(space)().complexity_range()
        return [(limit - least) / (greatest - least) for limit in get_preset(preset, "autoformer").values.values()]

    assert shares("autoformer-reduced", "small") == pytest.approx(shares("autoformer", "paper"), abs=0.01)


def test_one_supernet_serves_three_limits() -> None:
    plan = make_plan(find_studies("autoformer_space"), get_preset("demo", "autoformer"), [], seeds=3)
    assert len(plan.work) == 6  # with and without CaLR and MS; nothing is retrained
    assert all(len({one.trial.ranking_key for one in work.requests}) == 3 for work in plan.work)


def test_the_table_shows_what_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    only = ["--preset", "tiny", "--seeds", "1"]
    (study,) = find_studies("autoformer_space")
    first, *others = [one.trial for one in expand(study, get_preset("tiny", "autoformer"), seeds=1)][1::2]
    assert job(first, "runs")["status"] == "done"
    assert [job(one, "runs", "rank")["status"] for one in others] == ["done", "done"]
    assert main(["report", "autoformer_space", *only, "--format", "csv"]) == 0
    rows = csv.DictReader(io.StringIO(capsys.readouterr().out))
    found = {(one["Limit"], one["metric"]): float(one["value"]) for one in rows if one["value"]}
    limits = get_preset("tiny", "autoformer").values
    for size in "SML":
        assert 0 < found[size, "found_parameters"] <= limits[size]
        assert 0 < found[size, "found_accuracy"] <= 100
    assert main(["report", "autoformer_space", *only, "--compare"]) == 0
    text = capsys.readouterr().out
    assert "74.8" in text and "the time that CaLR and MS add is marginal" in text
