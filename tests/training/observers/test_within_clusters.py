"""Spread within clusters and the share of variance between them: against slow computations, and in a simulation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness.components.clustering import Clustering
from harness.components.dataset import DataSet
from harness.components.discovery import component
from harness.data.loader import DeviceLoader
from harness.training.observers.spread import Deviation, Spread
from harness.training.trial import run_trial
from tests.training.observers.test_curves import config, training

simulations: Any = component("reports.measured.simulations")

BY_FIRST = Clustering(5, lambda path: path[0])

Seen = dict[int, list[tuple[int, torch.Tensor]]]
"""By parameter: the cluster and the value of each step."""


def slow_within(values: Seen) -> float:
    """The mean over elements of the pooled deviation from the means of the clusters."""
    found = []
    for seen in values.values():
        clusters = {cluster for cluster, _ in seen}
        own = [torch.stack([v for c, v in seen if c == cluster]).double() for cluster in clusters]
        squares = sum(((stack - stack.mean(0)) ** 2).sum(0) for stack in own)
        if len(seen) > len(clusters):
            found.append((torch.as_tensor(squares) / (len(seen) - len(clusters))).sqrt().flatten())
    return float(torch.cat(found).mean())


def slow_share(values: Seen) -> float:
    """One less the mean squares within clusters over the total variance."""
    within = total = 0.0
    for seen in values.values():
        clusters = {cluster for cluster, _ in seen}
        if len(clusters) < 2 or len(seen) <= len(clusters):
            continue
        stack = torch.stack([value for _, value in seen]).double()
        total += float(stack.var(0).sum())
        for cluster in clusters:
            own = torch.stack([v for c, v in seen if c == cluster]).double()
            within += float(((own - own.mean(0)) ** 2).sum()) / (len(seen) - len(clusters))
    return 1 - within / total


@pytest.mark.parametrize("clusters", ["none", "operation"])
def test_within_clusters_against_a_slow_computation(clusters: str, few_digits: DataSet) -> None:
    made = training(clusters, few_digits, clip=None)
    parameters = made.momentum.parameters
    by = made.clustering if clusters == "operation" else BY_FIRST
    made.momentum.spread = Spread(parameters, by)
    loader = DeviceLoader(few_digits.train, few_digits, 16, seed=0)
    gradients: Seen = {}
    momenta: Seen = {}
    stored = None
    for step in range(24):
        path = made.source.draw(made.rng)
        if step == 12:  # as an interrupted training resumes
            stored = made.momentum.spread.state()
            made.momentum.spread = Spread(parameters, by)
            made.momentum.spread.restore(stored)
        made.descend(loader.batch(step), [path], step)
        optimiser = made.momentum.of(made.clustering.of(path))
        for place, parameter in enumerate(parameters):
            if parameter.grad is not None:
                gradients.setdefault(place, []).append((by.of(path), parameter.grad.clone()))
                buffer = optimiser.state[parameter]["momentum_buffer"]
                momenta.setdefault(place, []).append((by.of(path), buffer.clone()))
    measured = made.measured()
    assert measured["momentum_spread_within"] == pytest.approx(slow_within(momenta), rel=1e-4)
    assert measured["gradient_share_between"] == pytest.approx(slow_share(gradients), rel=1e-3, abs=1e-4)
    made.begin_epoch()
    assert made.measured() == {}


def test_steps_whose_paths_are_of_several_clusters_have_none(few_digits: DataSet) -> None:
    made = training("none", few_digits)
    made.momentum.spread = Spread(made.momentum.parameters, BY_FIRST)
    loader = DeviceLoader(few_digits.train, few_digits, 16, seed=0)
    for step in range(4):
        made.descend(loader.batch(step), [(3, 3, 3, 3, 3, 3), (2, 3, 3, 3, 3, 3)], step)
    assert set(made.measured()) == {"gradient_spread", "momentum_spread"}


def test_one_group_is_the_plain_deviation() -> None:
    plain, grouped = Deviation(2), Deviation(2)
    rng = torch.Generator().manual_seed(0)
    for _ in range(9):
        values = [torch.randn(3, generator=rng), torch.randn(2, generator=rng)]
        plain.add([0, 1], values)
        grouped.add([0, 1], values, 3)
    assert grouped.mean() == plain.mean()


def test_where_clusters_differ_separation_raises_pooled_spread_and_lowers_it_within() -> None:
    """Pooled over clusters, separated momenta spread more just where separation is of use."""
    alike = simulations.spread(0.0, False), simulations.spread(0.0, True)
    plain, separated = simulations.spread(0.5, False), simulations.spread(0.5, True)
    assert separated["momentum_spread"] > 1.5 * plain["momentum_spread"]
    assert separated["momentum_spread_within"] < 0.95 * plain["momentum_spread_within"]
    assert plain["gradient_share_between"] == pytest.approx(0.25 * 0.8 / (1 + 0.25 * 0.8), abs=0.02)
    assert all(abs(one["gradient_share_between"]) < 0.01 for one in alike)


@pytest.mark.parametrize(("method", "clusters"), [("spos", "none"), ("spos", "operation"), ("fsnas", "none")])
def test_a_run_observes_within_clusters(method: str, clusters: str) -> None:
    train = {"epochs": 2, "batch_size": 128}
    found = run_trial(
        config(method=method, clusters=clusters, train=train, observe={"spread": True, "spread_within": True})
    ).result["observed"]
    parts = 5 if method == "fsnas" else 1
    for name in ("momentum_spread", "momentum_spread_within", "gradient_share_between"):
        assert [step for step, _ in found[name]] == [parts, 2 * parts], name
    assert found["momentum_spread_within"] != found["momentum_spread"]


def test_a_baseline_is_observed_by_the_clusters_that_separation_would_draw() -> None:
    """Gradients of the first steps do not depend on momentum: the first epoch of one step has the same share."""
    train = {"epochs": 1, "batch_size": 256}
    plain, separated = (
        run_trial(config(clusters=clusters, train=train, observe={"spread_within": True}, optimiser={"momentum": 0.0}))
        for clusters in ("none", "operation")
    )
    ours, theirs = (one.result["observed"]["gradient_share_between"] for one in (plain, separated))
    assert ours == theirs
