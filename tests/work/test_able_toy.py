"""A user's space and supernet with every ability, a search and methods that use them: killed in each stage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import results
from harness.cli import main
from harness.components.registries import CLUSTER_RULES, DATASETS, SPACES
from harness.components.space import network_settings
from harness.components.supernet import Calibrated, Mixture, SharedEvaluation, TwiceDifferentiable
from harness.seeds import make_rng
from harness.stores.directory.store import DirectoryStore
from harness.stores.stored import StoredRun
from harness.study.trial import Trial
from harness.training.stages.train import build_supernets
from tests.able import FILES
from tests.jobs import died, job, outcome, trials
from tests.toy import user_folder

RUN = ["run", "able", "--preset", "tiny", "--seeds", "1", "--jobs", "1", "--checkpoint-every", "0"]
STAGES = {"train": 4, "rank": 3, "search": 2}
"""The stages of a trial that searches, each with the pass (or, of the search, the generation) at which it is killed."""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's folder with the toys, and a store of all trials that were left alone."""
    with user_folder(tmp_path_factory.mktemp("able"), FILES) as folder:
        for trial in trials("able"):
            assert job(trial, "whole")["status"] == "done"
        yield folder


def done(store: str) -> dict[str, StoredRun]:
    return {run.key: run for run in DirectoryStore(Path(store)).runs() if run.counts}


def deaths_of(trial: Trial) -> dict[str, int]:
    """The stages of the trial at which it is killed, with the number of the call."""
    if trial.config.retrain is not None:
        return {"retrain": 2}
    return STAGES if trial.config.search else {stage: STAGES[stage] for stage in ("train", "rank")}


def test_every_stage_of_every_toy_is_killed_and_resumes_to_the_same_bytes(project: Path) -> None:
    for trial in trials("able"):
        deaths = deaths_of(trial)
        for stage, calls in deaths.items():
            Path(f"die-{stage}").write_text(str(calls))
            assert died(trial, "killed"), stage
            assert not list(project.glob("die-*"))
        assert not died(trial, "killed")
        one, other = done("whole")[trial.key], done("killed")[trial.key]
        assert outcome("killed", other) == outcome("whole", one)
        assert (other.cost or {})["resumed"] == len(deaths)
        # What was evaluated before a death is not evaluated again.
        assert (other.cost or {})["evaluations"] == (one.cost or {})["evaluations"]


@pytest.mark.long
def test_the_same_by_the_command_line(project: Path) -> None:
    again = [*RUN, "--store", "commanded", "--retry", "failed"]
    for stage, calls in (STAGES | {"retrain": 2}).items():
        Path(f"die-{stage}").write_text(str(calls))
        assert main(again) == 1
    assert main(again) == 0
    whole, commanded = done("whole"), done("commanded")
    assert whole.keys() == commanded.keys()
    for key, run in whole.items():
        assert outcome("commanded", commanded[key]) == outcome("whole", run)


def test_all_rows_are_reported(project: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "able", "--preset", "tiny", "--seeds", "1", "--store", "whole"]) == 0
    text = capfd.readouterr().out
    accuracies = results.runs(store="whole", where="retrained_accuracy >= 0").retrained_accuracy
    assert len(accuracies) == 3 and all(f"{accuracy:.2f}" in text for accuracy in accuracies)


def test_the_supernet_has_each_ability(project: Path) -> None:
    network = build_supernets(trials("able")[0].config, DATASETS.get("few")()).networks[0]
    assert all(isinstance(network, ability) for ability in (SharedEvaluation, Calibrated, Mixture, TwiceDifferentiable))


def searched() -> tuple[Trial, StoredRun, dict[str, Any]]:
    """The trial that trains and searches, its run, and its weights."""
    trial = next(one for one in trials("able") if one.config.search and not one.config.retrain)
    run = done("whole")[trial.key]
    (weights,) = torch.load(Path("whole") / run.id / "weights.pt", weights_only=True)
    return trial, run, weights


def test_the_search_breeds_by_the_spaces_own_mutation_and_crossover(project: Path) -> None:
    trial, run, _ = searched()
    space: Any = SPACES.get("able")()
    document = json.loads((Path("whole") / run.id / "predictions.json").read_text())
    bred = [space.architecture(int(number)) for number in document["rough"]["16"]]
    assert len(bred) > 6 and all(space.paired(one) == one for one in bred)
    assert len({space.canonical(one) for one in bred}) == len(bred)
    assert all(300 <= space.complexity(one) <= 700 for one in bred)


def test_groups_of_parameters_come_from_the_space(project: Path) -> None:
    trial, _, weights = searched()
    initial = build_supernets(trial.config, DATASETS.get("few")()).networks[0].state_dict()
    moved = {name for name, value in weights.items() if not torch.equal(value, initial[name])}
    assert "head.weight" in moved and not {"stem.weight", "stem.bias"} & moved


def test_layers_come_from_the_space(project: Path) -> None:
    rule = CLUSTER_RULES.get("first-layer")().bind(SPACES.get("able")(), {}, make_rng(0, "clusters"))
    assert (rule.count, rule.decisions) == (6, (1, 2))  # the pooling belongs to no layer


def test_counts_follow_the_settings_of_the_network(project: Path) -> None:
    space = SPACES.get("able")()
    for run in done("whole").values():
        if (run.result or {}).get("retrained_accuracy") is not None:
            (weights,) = torch.load(Path("whole") / run.id / "weights.pt", weights_only=True)
            learnt = sum(one.numel() for name, one in weights.items() if "running" not in name and "num_" not in name)
            settings = network_settings(space.Network(channels=6), classes=10, image_channels=1, image_size=8)
            found = tuple((run.result or {})["top1"])
            assert learnt == space.complexity(found, settings=settings) != space.complexity(found)  # type: ignore[call-arg]


def test_each_architecture_is_ranked_with_statistics_of_its_own(project: Path) -> None:
    trial, run, _ = searched()
    config = trial.config
    plain = Trial(config.with_valid(rank=replace(config.rank, calibration=0)))
    assert plain.key == trial.key and job(plain, "whole", "rank")["status"] == "done"
    again = done("whole")[trial.key]
    assert again.id == run.id and len(again.rankings) == 2
    assert again.rankings[plain.ranking_key]["found"] != again.rankings[trial.ranking_key]["found"]


def test_methods_name_what_they_found_and_it_is_retrained(project: Path) -> None:
    found: list[list[int]] = []
    retrained: list[list[int]] = []
    weights = set()
    for run in done("whole").values():
        if run.trial["config"]["method"]["name"].startswith("mixing"):
            result = run.result or {}
            weights.add(outcome("whole", run)["weights.pt"])
            (retrained if run.trial["config"].get("retrain") else found).append(
                result["found"][0]["architecture"] if "found" in result else result["top1"]
            )
    assert sorted(found) == sorted(retrained) and len(found) == 2
    assert len(weights) == 4  # the second derivative makes a difference
