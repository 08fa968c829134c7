"""GM-NAS: its splits against brute force, its parts, its restart and what it costs."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from harness.components.dataset import DataSet
from harness.components.discovery import component
from harness.components.method import Part, check_partition
from harness.components.registries import SPACES
from harness.errors import InvalidConfiguration
from harness.training.cost import Meter
from harness.training.stages.train import build_supernets, prepare, train
from harness.training.supernet import SupernetTraining
from harness.work.effort import effort
from tests.training.stages import test_train

gm: Any = component("methods.gm_nas")
clusters, samplers = component("methods.clusters"), component("methods.samplers")
SPACE = SPACES.get("nasbench201")()
tiny: Any = test_train.tiny


def config(epochs: int = 9, **more: Any) -> Any:
    method = {"name": "gm-nas", "batches": 2, **more.pop("method", {})}
    return tiny(method, train={"epochs": epochs, "batch_size": 32}, **more)


def training_of(images: DataSet, **more: Any) -> tuple[Any, SupernetTraining]:
    method, (training,) = prepare(config(**more), build_supernets(config(**more), images), 2, images)
    return method, training


@given(st.integers(2, 6), st.integers(0, 2**32))
@settings(deadline=None, max_examples=30)
def test_halves_are_the_largest_cut_of_all_partitions(count: int, seed: int) -> None:
    rng = random.Random(seed)
    matrix = [[0.0] * count for _ in range(count)]
    for i, j in itertools.combinations(range(count), 2):
        matrix[i][j] = matrix[j][i] = rng.random()
    cuts = {}
    for colours in itertools.product((0, 1), repeat=count):
        if sum(colours) in (count // 2, count - count // 2):
            sides = tuple(tuple(one for one in range(count) if colours[one] == side) for side in (0, 1))
            cuts[sides] = sum(matrix[i][j] for i in range(count) for j in range(i) if colours[i] != colours[j])
    both = gm.halves(matrix)
    assert sorted(map(len, both)) == [count // 2, count - count // 2]
    assert gm.across(matrix, both) == pytest.approx(max(cuts.values())) == pytest.approx(cuts[both])


def test_the_split_is_that_of_brute_force(few_digits: DataSet) -> None:
    """Gradients by the plain network and autograd, all pairs of choices, all partitions, all decisions."""
    method, training = training_of(few_digits)
    state = training.rng.getstate()
    parts = method.divide(training, 2)
    assert parts is not None and training.sampled.passes == 2 * (1 + 6 * 4)
    training.rng.setstate(state)
    measured = gm.disagreement(training, dict.fromkeys(range(6), tuple(range(5))), 2)
    training.rng.setstate(state)
    network: Any = training.network
    disagree = {edge: dict.fromkeys(itertools.combinations(range(5), 2), 0.0) for edge in range(6)}
    for number in range(2):
        batch, path = training.unaugmented.batch(number), training.source.draw(training.rng)
        for edge in range(6):
            others = [one for name, one in network.named_parameters() if f".convolutions.{edge}_" not in name]
            rows = []
            for choice in range(5):
                logits = network.run(batch.images, (*path[:edge], choice, *path[edge + 1 :]))
                loss = functional.cross_entropy(logits, batch.labels)
                found = torch.autograd.grad(loss, others, materialize_grads=True)
                rows.append(torch.cat([one.flatten() for one in found]))
            for i, j in disagree[edge]:
                disagree[edge][i, j] += (1 - float(functional.cosine_similarity(rows[i], rows[j], dim=0))) / 2
    for edge, pairs in disagree.items():
        assert [measured[edge][i][j] for i, j in pairs] == pytest.approx(list(pairs.values()), abs=1e-4)
    best = max(
        ((edge, pair) for edge in range(6) for pair in itertools.combinations(range(5), 2)),
        key=lambda one: sum(d for ij, d in disagree[one[0]].items() if len(set(ij) & set(one[1])) == 1),
    )
    assert [part.allowed for part in parts] == [
        {best[0]: best[1]},
        {best[0]: tuple(sorted({0, 1, 2, 3, 4} - set(best[1])))},
    ]


def test_supernets_split_twice_into_four_parts_and_the_last_restart(few_digits: DataSet) -> None:
    meter = Meter(torch.device("cpu"))
    supernets = train(config(), few_digits, meter)
    check_partition(SPACE, Part({}), supernets.parts)
    assert len(supernets.parts) == 4 and all(len(part.allowed) == 2 for part in supernets.parts)
    assert {len(choices) for part in supernets.parts for choices in part.allowed.values()} == {2, 3}
    # 2, 2 and 5 of 9 epochs, with 1, 2 and 4 supernets, of 2 steps each; and 2 batches per choice and decision.
    assert meter.passes == 2 * (2 + 2 * 2 + 4 * 5) and meter.sampling_passes == 2 * (1 + 24) + 2 * 2 * (1 + 20)
    planned = effort(config(), lambda name: {"train": 48})
    assert planned is not None and planned.passes == meter.passes


@pytest.mark.parametrize("restart", [True, False])
def test_the_last_parts_have_initial_weights_and_the_schedule_from_its_start(
    restart: bool, few_digits: DataSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, tuple[float, bytes, int]] = {}
    descend = SupernetTraining.descend

    def watched(self: SupernetTraining, batch: Any, paths: Any, step: int, **more: Any) -> Any:
        weights = b"".join(one.numpy().tobytes() for one in self.network.state_dict().values())
        seen.setdefault(self.number, (self.rate_factors(paths, step)[0], weights, len(self.part.allowed)))
        return descend(self, batch, paths, step, **more)

    monkeypatch.setattr(SupernetTraining, "descend", watched)
    train(config(method={"restart": restart}), few_digits, Meter(torch.device("cpu")))
    levels = {level: [one for one in seen.values() if one[2] == level] for level in (0, 1, 2)}
    assert [len(own) for own in levels.values()] == [1, 2, 4]
    progress = 1 / 10 if restart else 9 / 18  # the first of the 10 steps that are left, or the ninth of all 18
    assert all(one[0] == pytest.approx(0.5 * (1 + math.cos(math.pi * progress))) for one in levels[2])
    # Copies of one supernet have equal weights. New ones differ from each other.
    assert len({one[1] for one in levels[1]}) == 1
    assert len({one[1] for one in levels[2]}) == (4 if restart else 2)


def test_clustered_decisions_are_not_split(few_digits: DataSet) -> None:
    for seed in range(3):
        method, training = training_of(few_digits, clusters="operation", schedule="calr", seed=seed)
        parts = method.divide(training, 2)
        assert parts is not None and not set(parts[0].allowed) & set(training.clustering.decisions or ())


def test_what_cannot_be_split_is_refused(few_digits: DataSet) -> None:
    method = gm.GMNAS()
    clustering = clusters.ByOperation(edges=5).bind(SPACE, {}, random.Random(0))
    with pytest.raises(InvalidConfiguration, match="splits 2 decisions .* nasbench201 has fewer"):
        method.check(SPACE, clustering, samplers.Uniform())
    for options, message in (
        ({"batches": 0}, "method.batches must be at least 1"),
        ({"split_after": (0.5, 0.2)}, "method.split_after must be rising shares between 0 and 1"),
    ):
        with pytest.raises(InvalidConfiguration, match=message):
            gm.GMNAS(**options)


@pytest.mark.parametrize(("epochs", "ends"), [(90, (20, 40)), (9, (2, 4)), (3, (1, 2)), (2, (1, 2))])
def test_splits_keep_the_published_ratios(epochs: int, ends: tuple[int, int], few_digits: DataSet) -> None:
    method, training = training_of(few_digits, epochs=epochs)
    assert tuple(method.epoch_of(level, training) for level in (0, 1)) == ends
    assert method.supernets_per_epoch(1) == pytest.approx((20 + 2 * 20 + 4 * 50) / 90)
