"""The search stage: what is stored of a search, resumed in its middle, and told to those who watch."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.components.registries import SPACES
from harness.components.space import Architecture
from harness.errors import InvalidConfiguration
from harness.study.configuration import Ranking, RunConfig
from harness.study.judging import Predictions
from harness.study.trial import Trial
from harness.training.cost import Meter
from harness.training.stages.rank import predict
from harness.training.stages.search import SearchProgress
from harness.training.stages.train import train
from harness.training.trial import Outcome, Watch, rank_again, run_trial
from harness.work.task import searching
from tests.stores.test_checkpoints import Stop, checkpoint, in_pieces, whole
from tests.toy import toy_config

EVOLUTION: dict[str, Any] = {"population": 4, "generations": 3, "parents": 2, "mutations": 2, "crossovers": 1}
SEARCH: dict[str, Any] = {"name": "evolution", "keep": 2, **EVOLUTION}


def searching_config(**more: Any) -> RunConfig:
    """The toy space, trained for one epoch, then searched; nothing is ranked but what the search scores."""
    rank = {"candidates": 1, "top1": False, "batch_size": 10}
    return toy_config(train={"epochs": 1, "batch_size": 40}, benchmark=None, rank=rank, search=SEARCH | more)


def same(one: Outcome, other: Outcome) -> bool:
    return json.dumps([one.result, one.searched]) == json.dumps([other.result, other.searched])


def test_every_score_is_kept_with_generation_cost_and_counts(toy_project: Path) -> None:
    outcome, space = run_trial(searching_config()), SPACES.get("toy")()
    assert outcome.searched is not None
    numbers, generations = outcome.searched["architectures"], outcome.searched["generations"]
    assert generations == sorted(generations) and set(generations) == {0, 1, 2}
    assert len(set(numbers)) == len(numbers) == outcome.result["scored"]["0"]
    architectures = [space.architecture(int(number)) for number in numbers]
    assert outcome.searched["accuracies"] == [outcome.predictions[one].accuracy for one in architectures]
    assert outcome.searched["counts"]["parameters"] == [space.complexity(one) for one in architectures]
    assert set(outcome.searched["images"]) == {50}
    best = max(outcome.searched["accuracies"])
    assert [one["score"] for one in outcome.result["found"]][0] == best


def test_scores_and_the_accuracy_of_what_is_found_are_in_the_precision_of_rankings(toy_project: Path) -> None:
    config, seen = searching_config(test_accuracy=True), Counter[torch.dtype]()

    def note(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(module, torch.nn.Conv2d) and not torch.is_grad_enabled():
            seen[output.dtype] += 1

    handle = torch.nn.modules.module.register_module_forward_hook(note)
    try:
        run_trial(replace(config, rank=replace(config.rank, precision="bfloat16")))
    finally:
        handle.remove()
    assert set(seen) == {torch.bfloat16} and seen.total() > 10


def test_a_search_at_two_costs_says_which_score_cost_what(toy_project: Path) -> None:
    search = {"name": "best-of-n-random", "samples": 6, "batches": 2, "finalists": 3}
    outcome = run_trial(replace(searching_config(), search=search))  # type: ignore[arg-type]
    assert outcome.searched is not None
    assert outcome.searched["images"] == [20] * 6 + [50] * 3
    assert set(outcome.searched["generations"]) == {None}


@pytest.mark.parametrize("saves", [1, 2, 3, 5, 8])
def test_stopped_again_and_again_it_ends_as_if_left_alone(saves: int, toy_project: Path, tmp_path: Path) -> None:
    config = searching_config()
    left_alone, _ = whole(config)
    resumed, _, pieces = in_pieces(tmp_path, config, saves)
    assert pieces > 1 and resumed.cost["resumed"] == pieces - 1
    assert same(resumed, left_alone) and resumed.cost["evaluations"] == left_alone.cost["evaluations"]


@pytest.mark.parametrize("saves", [1, 3, 4])
def test_a_search_with_stored_weights_resumes_too(saves: int, toy_project: Path, tmp_path: Path) -> None:
    trained = run_trial(replace(searching_config(), search=None))
    assert trained.supernets is not None
    weights = [network.state_dict() for network in trained.supernets.networks]
    config = searching_config(limits={"parameters": [None, 50]})
    left_alone = rank_again(config, lambda: weights, {})
    pieces = 0
    while True:
        pieces += 1
        assert pieces < 50, "it does not get on"
        with suppress(Stop):
            kept = checkpoint(tmp_path, config, saves, run="ranking")
            resumed = rank_again(config, lambda: weights, {}, checkpoint=kept)
            break
    assert pieces > 1 and resumed.cost["resumed"] == pieces - 1
    assert same(resumed, left_alone) and resumed.cost["evaluations"] == left_alone.cost["evaluations"]
    # Made with the training, it finds the same.
    assert run_trial(config).searched == left_alone.searched


def test_a_checkpoint_of_a_search_is_not_one_of_training(toy_project: Path, tmp_path: Path) -> None:
    config = searching_config()
    assert checkpoint(tmp_path, config).path != checkpoint(tmp_path, config, run="ranking").path


def test_progress_names_the_generation_and_the_best_so_far(
    toy_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[SearchProgress] = []
    outcome = run_trial(searching_config(), watch=Watch(searching=seen.append))
    assert outcome.searched is not None
    ended = [one.generation for one in seen if one.done == one.total]
    assert ended == [0, 1, 2] and {one.generations for one in seen} == {3} and len(seen) > 3
    assert seen[-1].best == max(outcome.searched["accuracies"])
    assert seen[-1].scored == len(outcome.searched["architectures"])
    reports: list[dict[str, Any]] = []
    searching(reports.append)(seen[-1])
    assert reports == [
        {"event": "search", "step": seen[-1].total, "steps": seen[-1].total, "generation": 3, "generations": 3}
        | {"scored": seen[-1].scored, "best": seen[-1].best}
    ]
    assert capsys.readouterr().out == f"generation 3/3: {seen[-1].scored} scored, best {seen[-1].best:.2f} %\n"


@pytest.fixture(scope="module")
def tracked() -> Any:
    """A trained supernet with running statistics, a configuration of it, and its images."""
    from harness.components.registries import DATASETS

    config = RunConfig.from_json(
        {
            "network": {"width": 4, "depth": 1, "batch_norm": "tracked"},
            "train": {"epochs": 1, "batch_size": 256},
            "rank": {"images": 128, "candidates": 1, "bins": 2},
        }
    )
    dataset = DATASETS.get("digits")()
    return config, dataset, train(config, dataset, Meter(torch.device("cpu")))


def test_calibration_changes_scores_and_depends_on_nothing_but_the_architecture(tracked: Any) -> None:
    config, dataset, supernets = tracked
    architectures: list[Architecture] = [(3, 1, 2, 3, 4, 1), (1, 2, 3, 2, 3, 3), (2, 2, 2, 2, 2, 2), (3, 3, 3, 3, 3, 3)]

    def scores(chosen: list[Architecture], calibration: int) -> Predictions:
        ranking = replace(config.rank, calibration=calibration)
        return predict(supernets, chosen, dataset, ranking, Meter(torch.device("cpu")))

    (network,) = supernets.networks
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    plain, calibrated = scores(architectures, 0), scores(architectures, 2)
    assert plain != calibrated
    assert scores(architectures[::-1], 2) == calibrated
    assert {one: scores([one], 2)[one] for one in architectures} == calibrated
    assert scores(architectures, 0) == plain
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert not any(module.training for module in network.modules())


def test_calibrated_statistics_are_the_means_over_the_batches(tracked: Any) -> None:
    from harness.training.calibration import calibrated

    config, dataset, supernets = tracked
    (network,) = supernets.networks
    images = (torch.tensor(dataset.train.images[:96]).float() - dataset.mean[0]) / dataset.std[0]
    with calibrated(network, (3,) * 6, images.split(32)):
        stem = torch.stack([network.stem(batch).mean((0, 2, 3)) for batch in images.split(32)]).mean(0)
        assert torch.allclose(network.stem_norm.running_mean, stem, atol=1e-5)
        assert not network.stem_norm.training
    assert not torch.allclose(network.stem_norm.running_mean, stem, atol=1e-5)


def test_a_search_is_calibrated_as_the_ranking_is(toy_project: Path) -> None:
    own: dict[str, Any] = {
        "network": {"width": 4, "depth": 1, "batch_norm": "tracked"},
        "train": {"epochs": 1, "batch_size": 512},
        "benchmark": None,
        "search": {"name": "evolution", "population": 3, "generations": 1, "mutations": 0, "crossovers": 0},
    }
    rank: dict[str, Any] = {"images": 64, "candidates": 1, "top1": False}
    plain, calibrated = (RunConfig.from_json({**own, "rank": {**rank, "calibration": n}}) for n in (0, 2))
    assert Trial(plain).key == Trial(calibrated).key and Trial(plain).ranking_key != Trial(calibrated).ranking_key
    one, other = run_trial(plain).searched, run_trial(calibrated).searched
    assert one is not None and other is not None
    assert one["architectures"] == other["architectures"] and one["accuracies"] != other["accuracies"]


def test_a_supernet_without_statistics_is_refused(toy_project: Path) -> None:
    config = replace(searching_config(), rank=Ranking(candidates=1, top1=False, calibration=1))
    with pytest.raises(InvalidConfiguration, match=r"rank\.calibration needs a supernet with the method calibrated"):
        run_trial(config)
