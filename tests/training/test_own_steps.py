"""Users' optimisers, methods, samplers and schedules that use the training step's hooks: run, killed, reported.

One study has a row per toy. Every row's schedule kills its own process half way while a file says so.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from harness import results
from harness.cli import main
from harness.components.discovery import component
from harness.components.method import Part, check_partition
from harness.components.registries import DATASETS, METHODS, SPACES
from harness.components.schedule import warmed
from harness.data.loader import DeviceLoader, in_order
from harness.errors import InvalidConfiguration
from harness.stores.directory.store import DirectoryStore
from harness.training.preparation import make_training
from harness.training.ranks import Ranks
from harness.training.separation import SeparatedMomentum
from harness.training.stages.train import build_supernets, make_step, prepare
from harness.training.supernet import SupernetTraining
from harness.training.trial import rank_again, run_trial
from harness.truth.table import Table
from harness.work import states
from tests.steps import FILES, ROWS
from tests.stores.test_checkpoints import Stop, checkpoint
from tests.toy import toy_config, user_folder


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, toy_table: Table) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("steps")
    toy_table.write(folder / "toy.npz")
    with user_folder(folder, FILES):
        yield folder


def run(store: str, *more: str) -> int:
    return main(["run", "steps", "--preset", "tiny", "--seeds", "1", "--no-references", "--store", store, *more])


def outcomes(store: Path) -> dict[str, tuple[bytes, ...]]:
    """What must be equal, by trial: results, predictions and weights as they lie there."""
    found = {}
    for one in DirectoryStore(store).runs():
        if one.counts:
            result = json.loads((store / one.id / "result.json").read_text())["result"]
            files = ((store / one.id / name).read_bytes() for name in ("predictions.json", "weights.pt"))
            found[one.key] = (json.dumps(result).encode(), *files)
    return found


def test_toys_are_killed_resumed_and_reported(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "armed").touch()
    with monkeypatch.context() as patch:
        patch.setattr(states, "LOSSES", 1)  # a trial that has died is not tried again at once
        assert run("killed", "--checkpoint-every", "0") == 1
    assert not outcomes(project / "killed")
    (project / "armed").unlink()
    assert run("killed") == 0
    assert run("whole") == 0
    assert outcomes(project / "killed") == outcomes(project / "whole") and len(outcomes(project / "whole")) == len(ROWS)
    table = results.runs(store=project / "killed")
    assert table["regret"].notna().sum() == 1 and table["found"].notna().sum() == 7
    assert set(table[table["status"] == "done"]["resumed"]) == {1}
    capsys.readouterr()
    assert main(["report", "steps", "--preset", "tiny", "--seeds", "1", "--store", "killed", "--format", "csv"]) == 0
    report = capsys.readouterr().out
    assert all(name in report for name in ROWS)


def test_supernets_split_while_training_goes_on(project: Path) -> None:
    outcome = run_trial(toy_config(method="dividing"))
    supernets = outcome.supernets
    assert supernets is not None
    assert [supernets.part_of(path) for path in ((1, 0, 0), (0, 0, 1), (2, 0, 0), (2, 1, 0))] == [0, 1, 1, 2]
    assert len(outcome.predictions) == 12
    # 2 epochs of one supernet, then 2 of the first part, 1 of the second and 1 of each of its parts: 3 steps each.
    assert outcome.cost["passes"] == 3 * (2 + 2 + 1 + 1 + 1)


def test_a_part_draws_from_its_sets_of_choices_only(project: Path) -> None:
    config, dataset = toy_config(sampler="curious"), DATASETS.get("toy")()
    supernets = build_supernets(config, dataset)
    part = Part({1: 0}, {0: (0, 2)})
    method = METHODS.get("dividing")()
    training = make_training(config, method, supernets.space, 3, dataset, part, supernets.networks[0], 1)
    assert {path[:2] for path in training.draw(30)} == {(0, 0), (2, 0)}


@pytest.mark.parametrize("parts", [[{0: (0, 1)}], [{0: (0, 1)}, {0: (1, 2)}], [{0: (0,)}, {1: (0,)}, {0: (1, 2)}]])
def test_a_split_that_is_no_partition_is_refused(parts: Any, project: Path) -> None:
    space = SPACES.get("toy")()
    check_partition(space, Part({}), [Part({0: 1}), Part({}, {0: (0, 2)})])
    with pytest.raises(InvalidConfiguration, match="no partition"):
        check_partition(space, Part({}), [Part({}, allowed) for allowed in parts])


@pytest.mark.parametrize("saves", [1, 4, 5])
def test_split_supernets_go_on_from_any_checkpoint(saves: int, project: Path, tmp_path: Path) -> None:
    config = toy_config(method="dividing")
    whole = run_trial(config)
    pieces = 0
    while True:
        try:
            outcome = run_trial(config, checkpoint=checkpoint(tmp_path, config, saves))
            break
        except Stop:
            pieces += 1
    assert pieces > 2
    assert outcome.result == whole.result and outcome.predictions == whole.predictions


def test_a_run_that_has_split_is_judged_again_and_refuses_other_architectures(project: Path) -> None:
    config = toy_config(method="dividing")
    first = run_trial(config)
    assert first.supernets is not None
    states = [network.state_dict() for network in first.supernets.networks]
    known = {SPACES.get("toy")().index(path): accuracy for path, accuracy in first.predictions.items()}
    assert rank_again(config, lambda: states, known).result["kendall_tau"] == first.result["kendall_tau"]
    with pytest.raises(InvalidConfiguration, match="the run has 3 supernets, which split"):
        rank_again(config, lambda: states, {})


def test_a_method_ranks_by_what_it_has_learned_and_resumes_in_the_ranking(project: Path, tmp_path: Path) -> None:
    config = toy_config(method="learnt")
    whole = run_trial(config)
    scores = list(whole.predictions.values())
    # Sums of logarithms, not percentages.
    assert len(set(scores)) > 3 and all(score.accuracy < 0 and score.loss is None for score in scores)
    best = max(whole.predictions, key=lambda architecture: whole.predictions[architecture])
    assert whole.result["top1"] == list(best) and whole.result["kendall_tau"] is not None
    # Twelve steps and the end of training are saved, then every scored architecture: this stops in the ranking.
    with pytest.raises(Stop):
        run_trial(config, checkpoint=checkpoint(tmp_path, config, saves=12 + 1 + 3))
    again = run_trial(config, checkpoint=checkpoint(tmp_path, config))
    assert again.predictions == whole.predictions and again.result == whole.result
    known = {SPACES.get("toy")().index(path): score for path, score in whole.predictions.items()}
    assert rank_again(config, list, known).result["kendall_tau"] == whole.result["kendall_tau"]
    with pytest.raises(InvalidConfiguration, match="learnt scores architectures by what it learned"):
        rank_again(config, list, {})


class Silent(Ranks):
    """A group in which all gradients cancel each other."""

    def sum_(self, tensors: Sequence[torch.Tensor], like: Sequence[torch.Tensor] | None = None) -> None:
        torch._foreach_zero_(list(tensors))

    @contextmanager
    def summing(self, parameters: Sequence[torch.Tensor]) -> Iterator[None]:
        yield
        self.sum_([one.grad for one in parameters if one.grad is not None])


def test_every_update_asks_the_ranks(project: Path) -> None:
    training = steps(0, method="learnt", optimiser={"weight_decay": 0.0})
    training.momentum.ranks = Silent()
    alphas: Any = training.modules["alphas"]
    before = [parameter.detach().clone() for parameter in (*training.network.parameters(), *alphas.parameters())]
    dataset = DATASETS.get("toy")()
    batch = DeviceLoader(dataset.train, dataset, 16, 0).batch(0)
    make_step(METHODS.get("learnt")(), training, batch, 0)
    after = (*training.network.parameters(), *alphas.parameters())
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def steps(count: int, **more: Any) -> SupernetTraining:
    """A training of the toy space after so many steps."""
    config = toy_config(**more)
    dataset = DATASETS.get("toy")()
    loader = DeviceLoader(dataset.train, dataset, 16, 0)
    method, (training,) = prepare(config, build_supernets(config, dataset), loader.steps_per_epoch)
    for step in range(count):
        make_step(method, training, loader.batch(step), step)
    return training


def test_a_sampler_sees_the_training_and_learns_after_every_step(project: Path) -> None:
    training = steps(2, sampler="curious")
    assert set(training.source.state()) == {str(path) for path in training.trained} | set(training.source.state())
    assert all(norm > 0 for norm in training.source.state().values()) and training.source.state()
    fair = steps(1, method="fairnas", sampler="curious")  # a method that knows nothing of it
    assert len(fair.trained) == 3 and set(map(str, fair.trained)) == set(fair.source.state())


def test_paths_of_one_cluster_are_drawn_for_any_method(project: Path) -> None:
    training = steps(0, clusters="operation")
    for _ in range(5):
        assert len({training.clustering.of(path) for path in training.draw(6)}) == 1


def test_modules_of_a_method_learn_and_are_part_of_the_state(project: Path) -> None:
    training, same = steps(3, method="learnt"), steps(0, method="learnt")
    fresh = [parameter.detach().clone() for parameter in steps(0, method="learnt").modules["alphas"].parameters()]  # type: ignore[union-attr]
    alphas = list(training.modules["alphas"].parameters())  # type: ignore[union-attr]
    assert any(not torch.equal(now, then) for now, then in zip(alphas, fresh, strict=True))
    assert all(parameter.grad is None for parameter in alphas)
    same.restore(training.state())
    for one, other in zip(alphas, same.modules["alphas"].parameters(), strict=True):  # type: ignore[union-attr]
        assert torch.equal(one, other)
    assert same.modules["optimiser"].state_dict()["state"][0]["step"] == 3


def test_a_step_says_how_many_passes_it_made(project: Path) -> None:
    plain, learnt = (run_trial(toy_config(method=name)).cost for name in ("spos", "learnt"))
    assert (learnt["passes"], learnt["images"]) == (2 * plain["passes"], 2 * plain["images"])  # type: ignore[operator]


def test_passes_that_only_choose_are_counted_apart_and_go_on_after_a_resume(project: Path, tmp_path: Path) -> None:
    plain, config = run_trial(toy_config()).cost, toy_config(sampler="asking")
    with pytest.raises(Stop):
        run_trial(config, checkpoint=checkpoint(tmp_path, config, saves=5))
    for cost in (run_trial(config).cost, run_trial(config, checkpoint=checkpoint(tmp_path, config)).cost):
        # 4 epochs of 3 steps; the 50 validation images come in batches of 16, 16, 16 and 2.
        assert (cost["passes"], cost["images"]) == (plain["passes"], plain["images"]) == (12, 160)
        assert (cost["sampling_passes"], cost["sampling_images"]) == (24, 2 * 3 * 50)
        assert 0 < cost["sampling_seconds"] < cost["stage_seconds"]["train"]  # type: ignore[operator, index]
    assert plain["sampling_passes"] == 0


@pytest.mark.parametrize(
    ("method", "message"),
    [("unfair", "gave 2 paths, but paths_per_step is 1"), ("empty", "neither `paths` nor `train_step`")],
)
def test_a_method_that_cannot_be_compared_is_refused_in_its_first_step(
    method: str, message: str, project: Path
) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        steps(1, method=method)


@pytest.mark.parametrize("optimiser", ["sign", "adamw", "sgd"])
def test_every_optimisers_state_is_separated_by_cluster(optimiser: str, project: Path) -> None:
    training = steps(8, optimiser={"name": optimiser, "learning_rate": 0.01}, clusters="operation")
    made = training.momentum.optimisers
    assert len(made) > 1
    shared = training.momentum.parameters[-1]
    settings = training.momentum.settings
    buffers = [settings.momentum_of(one, shared) for one in made.values() if one.state.get(shared)]
    assert len(buffers) > 1
    for number, buffer in enumerate(buffers):
        assert buffer is not None and all(not torch.equal(buffer, other) for other in buffers[:number])  # type: ignore[arg-type]
    # All that the optimiser keeps, the second moment too.
    states = [one.state[shared] for one in made.values() if one.state.get(shared)]
    for name in (name for name, value in states[0].items() if isinstance(value, torch.Tensor) and value.ndim):
        assert all(not torch.equal(a[name], b[name]) for a, b in itertools.combinations(states, 2))


def test_one_cluster_is_the_optimiser_itself_bit_for_bit() -> None:
    settings = component("methods.optimisers").AdamW(clip=None, clip_value=0.5)
    ours, theirs = ([torch.nn.Parameter(torch.ones(3, 4)), torch.nn.Parameter(torch.ones(5))] for _ in range(2))
    momentum = SeparatedMomentum(ours, settings)
    plain = torch.optim.AdamW(theirs, lr=5e-4, weight_decay=0.05, fused=True)
    for step in range(5):
        for parameters in (ours, theirs):
            torch.manual_seed(step)
            for parameter in parameters:
                parameter.grad = torch.randn_like(parameter)
        momentum.step(0, 0.001 * (5 - step))
        torch.nn.utils.clip_grad_value_(theirs, 0.5)
        plain.param_groups[0]["lr"] = 0.001 * (5 - step)
        plain.step()
    assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_groups_have_rates_and_decay_of_their_own(name: str) -> None:
    settings = getattr(component("methods.optimisers"), name)(learning_rate=0.1, weight_decay=0.5)
    decayed, kept, slow = (torch.nn.Parameter(torch.ones(3)) for _ in range(3))
    groups: list[Any] = [{"params": [decayed]}, {"params": [kept], "weight_decay_factor": 0.0}]
    momentum = SeparatedMomentum([*groups, {"params": [slow], "learning_rate_factor": 0.5}], settings)
    for parameter in (decayed, kept, slow):
        parameter.grad = torch.zeros(3)
    momentum.step(0, 0.1)
    assert kept.tolist() == [1.0] * 3
    moved = [1 - parameter.detach()[0].item() for parameter in (slow, decayed)]
    assert moved[0] == pytest.approx(moved[1] / 2, rel=1e-4) and moved[1] > 0.01


def test_a_warm_up_rises_to_the_schedule_and_no_rate_is_below_the_least() -> None:
    factor = warmed(lambda path, progress: 1 - progress, warmup=0.4, least=0.3)
    assert [round(factor((), step / 10), 6) for step in range(11)] == [
        *(0.3, 0.3, 0.4, 0.525, 0.6, 0.5, 0.4, 0.3, 0.3, 0.3, 0.3)
    ]
    plain = component("methods.schedules").Cosine().bind(None)
    assert warmed(plain, 0.0, 0.0) is plain


def test_warm_up_counts_epochs_and_steps(project: Path) -> None:
    warm = steps(0, train={"epochs": 4, "batch_size": 16, "warmup_epochs": 1, "warmup_steps": 3}, schedule="constant")
    factors = [warm.rate_factors([(1, 1, 1)], step)[0] for step in range(12)]
    assert factors == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, *[1.0] * 7])
    least = steps(0, train={"epochs": 4, "batch_size": 16, "least_rate": 0.25}, schedule="mortal")
    assert [least.rate_factors([(1, 1, 1)], step)[0] for step in (8, 9, 10, 11)] == [0.25] * 4


def test_an_optimiser_of_the_methods_own_is_clipped(project: Path) -> None:
    training = steps(0)
    for clipping, expected in (({"clip": 0.5}, [0.3, 0.4]), ({"clip_value": 3.5}, [3.0, 3.5]), ({}, [3.0, 4.0])):
        own = torch.nn.Parameter(torch.zeros(2))
        training.modules["own"] = torch.optim.SGD([own], lr=1.0)
        own.grad = torch.tensor([3.0, 4.0])
        training.update_own("own", **clipping)
        assert (-own.detach()).tolist() == pytest.approx(expected, rel=1e-4)


def test_validation_batches_are_those_of_the_ranking_images(project: Path) -> None:
    training, dataset = steps(0), DATASETS.get("toy")()
    loader = training.validation
    assert loader.steps_per_epoch == 4  # 50 images, 16 at a time; there are 40 to train on
    seen = torch.cat([loader.batch(step).images for step in range(4)])
    indices = torch.cat([loader.batch(step).indices for step in range(4)])
    stored = torch.cat([images for images, _ in in_order(dataset.valid, dataset, 50)])
    assert sorted(indices.tolist()) == list(range(50)) and torch.equal(seen, stored[indices])


def test_logits_and_losses_are_those_of_the_path_and_the_target(project: Path) -> None:
    training, dataset = steps(2), DATASETS.get("toy")()
    batch = DeviceLoader(dataset.train, dataset, 16, 0).batch(0)
    other = batch.labels.roll(1)
    for path in ((1, 0, 0), (2, 1, 1)):
        expected = training.network(batch.images, path)
        assert torch.equal(training.logits(batch, path), expected)
        assert torch.equal(training.loss(batch, path), functional.cross_entropy(expected, batch.labels))
        for target in (other, functional.one_hot(other, 10).float()):
            assert torch.allclose(training.loss(batch, path, target), functional.cross_entropy(expected, target))
    assert not torch.equal(training.loss(batch, (2, 1, 1), other), training.loss(batch, (2, 1, 1)))


def test_a_method_is_told_of_every_epoch_once(project: Path, tmp_path: Path) -> None:
    """In a resumed training, too."""
    config = toy_config(method="learnt")
    with pytest.raises(Stop):
        run_trial(config, checkpoint=checkpoint(tmp_path, config, saves=5))
    told: list[int] = []

    def score(method: Any, trainings: Sequence[SupernetTraining], architecture: Any) -> float:
        told[:] = trainings[0].memory["epochs"]
        return 0.0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(METHODS.get("learnt"), "score", score)
        run_trial(config, checkpoint=checkpoint(tmp_path, config))
    assert told == [0, 1, 2, 3]


def test_the_order_of_samples_is_the_methods_else_the_configurations(project: Path) -> None:
    def trained(**more: Any) -> torch.Tensor:
        supernets = run_trial(toy_config(**more)).supernets
        assert supernets is not None
        return torch.cat([parameter.detach().flatten() for parameter in supernets.networks[0].parameters()])

    stored = {"epochs": 4, "batch_size": 16, "order": "stored"}
    plain, ordered = trained(), trained(train=stored)
    own, both = trained(method="resampling"), trained(method="resampling", train=stored)
    assert not torch.equal(plain, ordered) and not torch.equal(plain, own) and torch.equal(own, both)
