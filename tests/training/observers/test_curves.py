"""What is measured while training goes on: against plain loops, and without changing what is trained."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.components.benchmark import benchmark_for
from harness.components.dataset import DataSet
from harness.components.discovery import component
from harness.components.method import Part
from harness.components.registries import SPACES
from harness.components.space import NetworkSettings
from harness.data.loader import DeviceLoader
from harness.errors import InvalidConfiguration
from harness.study.configuration import Observe, RunConfig
from harness.study.curves import curves_of
from harness.study.trial import Trial
from harness.training.cost import Meter
from harness.training.observers.curves import Observers, observed_subnets
from harness.training.observers.similarity import GradientSimilarity
from harness.training.observers.spread import Deviation, Spread
from harness.training.separation import SeparatedMomentum
from harness.training.stages.train import Progress, build_supernets
from harness.training.supernet import SupernetTraining
from harness.training.trial import run_trial
from harness.truth.imported import AccuracyTable

Optimiser: Any = component("methods.optimisers").SGD

ALL = {"kendall_tau_every": 1, "subnets_every": 1, "spread": True, "gradient_similarity": True}


def config(**more: Any) -> RunConfig:
    base = {
        "network": {"width": 4, "depth": 1},
        "train": {"epochs": 2, "batch_size": 512},
        "rank": {"images": 32, "candidates": 5, "bins": 5},
    }
    return RunConfig.from_json({**base, **more})


def training(clusters: str, dataset: DataSet, **momentum: Any) -> SupernetTraining:
    space = SPACES.get("nasbench201")()
    torch.manual_seed(0)
    network = space.supernet(NetworkSettings(width=4, depth=1, image_channels=1, image_size=8))
    rules = component("methods.clusters")
    rule = {"none": rules.NoClusters, "operation": rules.ByOperation}[clusters]()
    return SupernetTraining(
        space=space,
        part=Part({}),
        network=network,
        momentum=SeparatedMomentum(network.parameters(), Optimiser(**momentum)),
        clustering=rule.bind(space, {}, random.Random(0)),
        source=component("methods.samplers").Uniform().bind(space, {}),
        factor=lambda path, progress: 1 - progress / 2,
        factor_depends_on_path=False,
        rng=random.Random(0),
        total_steps=40,
    )


def test_deviation_against_the_definition() -> None:
    rng = torch.Generator().manual_seed(0)
    values = [[1e3 + torch.randn(2, 3, generator=rng), torch.randn(4, generator=rng)] for _ in range(30)]
    seen = Deviation(3)
    for number, (first, second) in enumerate(values):
        both = number % 3 == 0
        seen.add([0, 2] if both else [0], [first, second] if both else [first])
    first_std = torch.stack([one for one, _ in values]).double().std(0)
    second_std = torch.stack([two for _, two in values[::3]]).double().std(0)
    expected = torch.cat([first_std.flatten(), second_std]).mean()
    assert seen.mean() == pytest.approx(float(expected), rel=1e-4)
    seen.clear()
    assert seen.mean() is None
    seen.add([0], [torch.ones(2, 3)])
    assert seen.mean() is None  # one value has no deviation
    seen.add([0], [torch.zeros(2, 3)])
    assert seen.mean() == pytest.approx(math.sqrt(0.5))


@pytest.mark.parametrize("clusters", ["none", "operation"])
@pytest.mark.parametrize("inactive", ["untouched", "decay"])
def test_spread_of_an_epoch_against_a_slow_one(clusters: str, inactive: str, few_digits: DataSet) -> None:
    made = training(clusters, few_digits, inactive=inactive, clip=None)
    parameters = made.momentum.parameters
    made.momentum.spread = Spread(parameters)
    loader = DeviceLoader(few_digits.train, few_digits, 16, seed=0)
    gradients: dict[int, list[torch.Tensor]] = {}
    momenta: dict[int, list[torch.Tensor]] = {}
    for step in range(12):
        path = made.source.draw(made.rng)
        made.descend(loader.batch(step), [path], step)
        optimiser = made.momentum.of(made.clustering.of(path))
        for place, parameter in enumerate(parameters):
            if parameter.grad is not None:
                # Nesterov and weight decay leave the gradient itself alone.
                gradients.setdefault(place, []).append(parameter.grad.clone())
                momenta.setdefault(place, []).append(optimiser.state[parameter]["momentum_buffer"].clone())

    def slow(values: dict[int, list[torch.Tensor]]) -> float:
        several = [torch.stack(seen).double().std(0).flatten() for seen in values.values() if len(seen) > 1]
        return float(torch.cat(several).mean())

    measured = made.measured()
    assert measured["gradient_spread"] == pytest.approx(slow(gradients), rel=1e-4)
    assert measured["momentum_spread"] == pytest.approx(slow(momenta), rel=1e-4)
    assert made.observers_bytes() >= 4 * 4 * sum(parameters[place].numel() for place in gradients)
    made.begin_epoch()
    assert made.measured() == {}


def test_spread_is_that_of_gradients_before_they_are_clipped(few_digits: DataSet) -> None:
    loader = DeviceLoader(few_digits.train, few_digits, 16, seed=0)
    found = []
    for clip in (None, 1e-6):
        made = training("none", few_digits, clip=clip, learning_rate=1e-12)
        made.momentum.spread = Spread(made.momentum.parameters)
        for step in range(4):
            made.descend(loader.batch(step), [(3, 3, 3, 3, 3, 3)], step)
        found.append(made.measured())
    assert found[0]["gradient_spread"] == pytest.approx(found[1]["gradient_spread"], rel=1e-3)
    assert found[0]["momentum_spread"] > 10 * found[1]["momentum_spread"]


def test_without_momentum_its_spread_is_not_measured(few_digits: DataSet) -> None:
    made = training("none", few_digits, momentum=0.0)
    made.momentum.spread = Spread(made.momentum.parameters)
    loader = DeviceLoader(few_digits.train, few_digits, 16, seed=0)
    for step in range(3):
        made.descend(loader.batch(step), [(3, 3, 3, 3, 3, 3)], step)
    assert set(made.measured()) == {"gradient_spread"}


def test_gradient_similarity_against_one_path_at_a_time(few_digits: DataSet) -> None:
    made = training("none", few_digits, learning_rate=1e-12)
    stem = made.momentum.parameters[0]
    made.similarity = GradientSimilarity(stem, first_step=2)
    loader = DeviceLoader(few_digits.train, few_digits, 16, seed=0)
    paths = [(3, 1, 2, 3, 4, 1), (3, 1, 2, 3, 4, 2), (0, 0, 0, 0, 0, 0), (1, 1, 1, 1, 1, 1)]
    cosines: dict[int, list[float]] = {}
    for step in range(5):
        batch = loader.batch(step)
        alone = []
        for path in paths:
            made.network.zero_grad(set_to_none=True)
            loss = made.loss(batch, path)
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
            alone.append(torch.zeros_like(stem) if stem.grad is None else stem.grad.clone())
        made.descend(batch, paths, step)
        for place, other in enumerate(alone[1:], start=1):
            if step >= 2 and other.any():
                cosine = torch.nn.functional.cosine_similarity(alone[0].flatten(), other.flatten(), dim=0)
                cosines.setdefault(place, []).append(float(cosine))
    expected = {f"mgcs_{place}": statistics.fmean(values) for place, values in cosines.items()}
    assert set(expected) == {"mgcs_1", "mgcs_3"}  # the second gives the stem nothing
    assert made.measured() == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("method", ["spos", "fairnas", "fsnas"])
def test_observing_changes_nothing_that_is_trained(method: str) -> None:
    more = {"method": method, "schedule": "calr", "clusters": "operation"}
    plain, observed = run_trial(config(**more)), run_trial(config(**more, observe=ALL))
    assert plain.supernets is not None and observed.supernets is not None
    for one, other in zip(plain.supernets.networks, observed.supernets.networks, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    curves = observed.result.pop("observed")
    assert plain.result.pop("observed") == {}
    assert plain.result == observed.result and plain.predictions == observed.predictions
    parts = 5 if method == "fsnas" else 1
    steps = [parts, 2 * parts]
    sizes = [
        f"valid_{kind}_{size}" for kind, size in itertools.product(("loss", "accuracy"), ("small", "medium", "large"))
    ]
    for name in ("kendall_tau", "gradient_spread", "momentum_spread", *sizes):
        assert [step for step, _ in curves[name]] == steps
    assert ("mgcs_1" in curves) == (method == "fairnas")  # one path has nothing to be compared with
    if method == "fairnas":
        assert [step for step, _ in curves["mgcs_4"]] == [2]  # in the last epoch
    assert curves["kendall_tau"][-1][1] == observed.result["kendall_tau"]


def test_observed_subnets_are_of_three_sizes_and_typical(toy_project: Path) -> None:
    real = config()
    benchmark = benchmark_for("digits", "nasbench201")
    chosen = observed_subnets(benchmark.space, benchmark, real)
    sizes = [benchmark.space.complexity(architecture) for architecture in chosen.values()]
    assert list(chosen) == ["small", "medium", "large"] and sizes == sorted(sizes)
    low, high = benchmark.space.complexity_range()
    third = (high - low) / 3
    assert low <= sizes[0] <= low + third < sizes[1] <= low + 2 * third < sizes[2] <= high
    truth = benchmark.accuracies("digits")
    below = [
        float(truth[benchmark.space.index(one)])
        for one in benchmark.space
        if benchmark.space.complexity(one) <= low + third
    ]
    assert benchmark.accuracy(chosen["small"], "digits") == pytest.approx(statistics.median(below), abs=0.5)


def test_training_memory_leaves_out_what_only_measures() -> None:
    more = {"train": {"epochs": 2, "batch_size": 64}}
    plain, observed = run_trial(config(**more)).cost, run_trial(config(**more, observe=ALL)).cost
    assert isinstance(plain["training_memory_bytes"], int) and isinstance(observed["peak_memory_bytes"], int)
    assert 0 < plain["training_memory_bytes"] <= observed["peak_memory_bytes"] + 2**26


def test_time_to_measure_is_no_time_of_training(few_digits: DataSet) -> None:
    made = training("none", few_digits)
    made.momentum.spread = Spread(made.momentum.parameters)
    loader = DeviceLoader(few_digits.train, few_digits, 16, seed=0)
    meter = Meter(torch.device("cpu"))
    for step in range(3):
        made.descend(loader.batch(step), [(3, 3, 3, 3, 3, 3)], step)
    spent = made.momentum.spread.seconds
    meter.measured_in_steps(spent)
    assert 0 < spent == meter.stages["observe"] < meter.stages["train"] + spent
    assert sum(meter.stages.values()) == pytest.approx(meter.seconds, abs=0.05)
    assert set(run_trial(config(observe={"spread": True})).cost["stage_seconds"]) == {"train", "observe", "rank"}  # type: ignore[call-overload]
    assert set(run_trial(config()).cost["stage_seconds"]) == {"train", "rank"}  # type: ignore[call-overload]


def test_unions_hold_what_each_wants() -> None:
    one, other = Observe(kendall_tau_every=4, spread=True), Observe(kendall_tau_every=6, subnets_every=5)
    assert one.union(other) == Observe(kendall_tau_every=2, subnets_every=5, spread=True)
    assert one.union(Observe()) == one
    with pytest.raises(InvalidConfiguration, match="observe.subnets_every must not be negative"):
        Observe(subnets_every=-1)


def test_one_training_gives_the_curves_of_every_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few_digits: DataSet
) -> None:
    """Where a configuration names a truth, those of the benchmark's other data sets judge the same training."""
    chance, truths = np.random.default_rng(3), ("cifar10", "cifar100")
    columns = {(name, split): chance.uniform(5, 90, 15_625) for name in truths for split in ("valid", "test")}
    AccuracyTable(columns, {"space": "nasbench201"}).write(tmp_path / "nasbench201.npz")
    monkeypatch.setenv("HARNESS_BENCHMARKS", str(tmp_path))
    observed, keys = {}, {}
    for truth in truths:
        asked = config(
            benchmark="nasbench201",
            rank={"images": 32, "bins": 30, "truth": truth},
            observe={"kendall_tau_every": 1, "subnets_every": 1},
        )
        meter, benchmark = Meter(torch.device("cpu")), benchmark_for("nasbench201", "nasbench201")
        observers = Observers(asked, few_digits, benchmark, meter, lambda name, step, value: None)
        observers(build_supernets(asked, few_digits), Progress(0, 1, 1, 2, 2.0, {}))
        observed[truth], keys[truth] = observers.points, Trial(asked).ranking_key
    first, second = truths
    own, other = (curves_of(observed[first], keys[first], keys[truth]) for truth in truths)
    assert own != other and len(own) == len(other) == 9 and len(observed[first]) == 18
    assert own == {name: points for name, points in observed[first].items() if "@" not in name}
    assert other == curves_of(observed[second], keys[second], keys[second])
