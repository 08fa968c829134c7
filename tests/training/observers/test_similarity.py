"""Similarity of gradients by the number of decisions in which subnets differ, and MGCS over groups of paths."""

from __future__ import annotations

import random
import statistics

import pytest
import torch

from harness.components.dataset import DataSet
from harness.components.method import Part
from harness.components.registries import METHODS, SPACES
from harness.components.space import NetworkSettings
from harness.data.loader import DeviceLoader
from harness.training.observers.similarity import GradientSimilarity, pairs_by_distance, similarity_by_distance
from harness.training.trial import run_trial
from tests.training.observers.test_curves import config, training


@pytest.mark.parametrize(
    ("part", "distances"),
    [(Part({}), [1, 2, 3, 4, 5, 6]), (Part({0: 3}), [1, 2, 3, 4, 5]), (Part({1: 2}, {2: (1, 3)}), [1, 2, 3, 4, 5])],
)
def test_pairs_differ_in_as_many_decisions_and_belong_to_the_part(part: Part, distances: list[int]) -> None:
    space = SPACES.get("nasbench201")()
    found = pairs_by_distance(space, part, random.Random(0), pairs=7)
    assert list(found) == distances and all(len(own) == 7 for own in found.values())
    for distance, own in found.items():
        for one, other in own:
            assert sum(a != b for a, b in zip(one, other, strict=True)) == distance
            assert one in part and other in part and space.is_connected(one) and space.is_connected(other)
    assert len({tuple(one for one, _ in own) for own in found.values()}) == 1  # the bases are the same


@pytest.mark.parametrize("batch_norm", ["batch-statistics", "running-statistics"])
def test_similarity_against_whole_backward_passes(batch_norm: str, few_digits: DataSet) -> None:
    space = SPACES.get("nasbench201")()
    torch.manual_seed(0)
    settings = NetworkSettings(width=4, depth=1, image_channels=1, image_size=8)
    if hasattr(settings, "batch_norm"):
        settings = type(settings)(**{**vars(settings), "batch_norm": batch_norm})
    network = space.supernet(settings)
    network.eval()
    batch = DeviceLoader(few_digits.train, few_digits, 16, seed=0).batch(0)
    pairs = pairs_by_distance(space, Part({}), random.Random(1), pairs=4)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    found = similarity_by_distance(network, pairs, batch.images, batch.labels)
    assert not network.training and all(one.grad is None for one in network.parameters())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    network.train()
    for distance, own in pairs.items():
        cosines = []
        for pair in own:
            gradients = []
            for subnet in pair:
                network.zero_grad(set_to_none=True)
                torch.nn.functional.cross_entropy(network(batch.images, subnet), batch.labels).backward()  # type: ignore[no-untyped-call]
                gradients.append(next(network.parameters()).grad.clone().flatten())  # type: ignore[union-attr]
            cosines.append(float(torch.nn.functional.cosine_similarity(gradients[0], gradients[1], dim=0)))
        assert found[f"gradient_similarity_{distance}"] == pytest.approx(statistics.fmean(cosines), abs=1e-4)
        assert found[f"gradient_similarity_deviation_{distance}"] == pytest.approx(statistics.stdev(cosines), abs=1e-4)


def test_mgcs_is_the_mean_over_groups_and_its_deviation_that_between_them(few_digits: DataSet) -> None:
    """Groups with different numbers of steps count alike."""
    made = training("none", few_digits, learning_rate=1e-12)
    stem = made.momentum.parameters[0]
    made.similarity = GradientSimilarity(stem, first_step=0)
    loader = DeviceLoader(few_digits.train, few_digits, 16, seed=0)
    groups = [[(3, 1, 2, 3, 4, 1), (3, 1, 2, 3, 4, 2)], [(1, 1, 1, 1, 1, 1), (2, 1, 3, 1, 4, 2)]]
    cosines: list[list[float]] = [[], []]
    for step, number in enumerate((0, 1, 1, 1)):
        batch, alone = loader.batch(step), []
        for path in groups[number]:
            made.network.zero_grad(set_to_none=True)
            made.loss(batch, path).backward()  # type: ignore[no-untyped-call]
            assert stem.grad is not None
            alone.append(stem.grad.clone().flatten())
        cosines[number].append(float(torch.nn.functional.cosine_similarity(alone[0], alone[1], dim=0)))
        if step == 2:  # as an interrupted training resumes
            stored = made.similarity.state()
            made.similarity = GradientSimilarity(stem, first_step=0)
            made.similarity.restore(stored)
        made.descend(batch, groups[number], step)
    means = [statistics.fmean(own) for own in cosines]
    expected = {"mgcs_1": statistics.fmean(means), "mgcs_deviation_1": statistics.stdev(means)}
    assert made.measured() == pytest.approx(expected, abs=1e-3)


def test_related_groups_take_turns_and_the_first_is_that_of_one_group(few_digits: DataSet) -> None:
    made, alone = training("none", few_digits), training("none", few_digits)
    several, one = METHODS.get("related")(bases=3), METHODS.get("related")()
    taken = []
    for step in range(6):
        made.step = step
        taken.append(tuple(several.paths(made)))
    assert taken[:3] == taken[3:] and len(set(taken)) == 3
    assert tuple(one.paths(alone)) == taken[0]


def test_a_run_observes_similarity_and_is_not_changed_by_it() -> None:
    plain, observed = run_trial(config()), run_trial(config(observe={"similarity_every": 2}))
    curves = observed.result.pop("observed")
    assert plain.result.pop("observed") == {} and plain.result == observed.result
    assert {name for name in curves if "deviation" not in name} == {f"gradient_similarity_{n}" for n in range(1, 7)}
    assert all([step for step, _ in points] == [2] for points in curves.values())
