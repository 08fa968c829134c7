"""The schedules' numbers, against the released code's and against the equations."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from scipy.stats import chisquare, pearsonr

from harness.components.discovery import component
from harness.components.registries import DATASETS, SPACES
from harness.components.space import Architecture, Space, network_settings
from harness.errors import InvalidConfiguration
from harness.study.configuration import RunConfig
from harness.study.trial import Trial
from harness.training.preparation import prepare
from harness.training.stages.train import build_supernets

schedules = component("methods.schedules")

SMALLEST: Architecture = (0,) * 6
LARGEST: Architecture = (3,) * 6


@pytest.fixture(scope="module")
def space() -> Space:
    return SPACES.get("nasbench201")()


def released(gamma_prime: float = 4.0, function: str = "log") -> Any:
    return schedules.CaLR(gamma_prime, function, "parameters-released")


def test_calr_has_the_released_coefficients(space: Space) -> None:
    slope, offset = released().coefficients(space)
    assert (round(slope, 5), round(offset, 5)) == (-1.23265, 17.79933)
    assert round(math.exp((1 - offset) / slope) / 1e6, 3) == 0.830  # where γ = 1


def test_calr_has_the_released_decay_ratios(space: Space) -> None:
    ratio = released().decay_ratio(space)
    gammas = [ratio((3,) * n3 + (0,) * (6 - n3)) for n3 in range(7)]
    assert [round(gamma, 3) for gamma in gammas] == [4, 2.195, 1.492, 1.047, 0.721, 0.463, 0.25]


def test_calr_mostly_decays_faster_than_linear(space: Space) -> None:
    shares = {}
    for gamma_prime in (4.0, 3.0, 2.0):
        ratio = released(gamma_prime).decay_ratio(space)
        values = [ratio(architecture) for architecture in space]
        assert len(values) == 15_625
        shares[gamma_prime] = round(100 * sum(value > 1 for value in values) / len(values))
        if gamma_prime == 4:
            assert round(sum(values) / len(values), 2) == 2.18
    assert shares == {4.0: 97, 3.0: 90, 2.0: 66}


@pytest.mark.parametrize("count", ["parameters", "parameters-released", "flops"])
@pytest.mark.parametrize("gamma_prime", [2.0, 3.0, 4.0])
@pytest.mark.parametrize("function", ["log", "linear", "exp"])
def test_the_smallest_subnet_decays_fastest(space: Space, function: str, gamma_prime: float, count: str) -> None:
    ratio = schedules.CaLR(gamma_prime, function, count).decay_ratio(space)
    assert ratio(SMALLEST) == pytest.approx(gamma_prime, rel=1e-9)
    assert ratio(LARGEST) == pytest.approx(1 / gamma_prime, rel=1e-9)


@pytest.mark.parametrize("function", ["log", "linear", "exp", "reversed"])
def test_decay_ratios_are_monotonic_in_complexity(space: Space, function: str) -> None:
    by_size = sorted({space.complexity(a, "parameters-released"): a for a in space}.items())
    ratio = released(function=function).decay_ratio(space)
    gammas = [ratio(architecture) for _, architecture in by_size]
    steps = [after - before for before, after in zip(gammas, gammas[1:], strict=False)]
    assert all(step > 0 for step in steps) if function == "reversed" else all(step < 0 for step in steps)


def test_the_functions_are_what_they_are_called(space: Space) -> None:
    """γ is affine in g(C): the share of the way from γ′ to 1/γ′ is that of g(C) between its ends."""
    path = (3, 2, 3, 0, 1, 4)
    low, here, high = (space.complexity(a, "parameters-released") for a in (SMALLEST, path, LARGEST))
    functions: dict[str, Callable[[float], float]] = {
        "log": math.log,
        "linear": float,
        "exp": lambda c: math.exp(c / 1e6),
    }
    for name, g in functions.items():
        share = (g(here) - g(low)) / (g(high) - g(low))
        assert released(function=name).decay_ratio(space)(path) == pytest.approx(4 + share * (1 / 4 - 4)), name


def test_reversed_goes_the_other_way_round(space: Space) -> None:
    """Table 4: γ ∝ −log(k − C) with k = C_min + C_max, so the largest subnet decays fastest."""
    ratio = released(function="reversed").decay_ratio(space)
    assert ratio(SMALLEST) == pytest.approx(1 / 4)
    assert ratio(LARGEST) == pytest.approx(4)
    slope, offset = released().coefficients(space)
    for path in [(3, 0, 0, 0, 0, 0), (2, 3, 1, 4, 3, 0)]:
        mirrored = 72_752 + 1_524_272 - space.complexity(path, "parameters-released")
        assert ratio(path) == pytest.approx(slope * math.log(mirrored) + offset)


def test_calr_gives_each_path_its_own_rate(space: Space) -> None:
    schedule = released()
    factor = schedule.bind(space)
    assert schedule.depends_on_path
    for path, gamma in [(SMALLEST, 4.0), (LARGEST, 0.25)]:
        assert factor(path, 0.0) == 1.0
        assert factor(path, 0.5) == pytest.approx(0.5**gamma)
        assert factor(path, 1.0) == 0.0


def test_calr_can_count_the_networks_of_the_trial(space: Space) -> None:
    """Against γ by hand from the parameters of real networks of the trial's size; by default the benchmark's count."""
    small = {"network": {"width": 4, "depth": 1}, "train": {"epochs": 1}}
    paths = [(3,) * n3 + (0,) * (6 - n3) for n3 in range(7)]
    gammas = {}
    for counted, gamma_prime in (("space", 4.0), ("trial", 4.0), ("trial", 3.0)):
        schedule = {"name": "calr", "gamma_prime": gamma_prime, "count_at": counted}
        config = RunConfig.from_json({"schedule": schedule, **small})
        dataset = DATASETS.get("digits")()
        supernets = build_supernets(config, dataset)
        _, (training,) = prepare(config, supernets, 10)
        gammas[counted, gamma_prime] = [-math.log2(training.factor(path, 0.5)) for path in paths]
        if counted == "trial":
            settings = network_settings(config.network, **dataset.inputs)
            networks = [space.standalone(path, space.alone(settings)) for path in paths]
            logs = [math.log(sum(weights.numel() for weights in network.parameters())) for network in networks]
            span = gamma_prime - 1 / gamma_prime
            expected = [gamma_prime - span * (log - logs[0]) / (logs[6] - logs[0]) for log in logs]
            assert gammas[counted, gamma_prime] == pytest.approx(expected, rel=1e-9)
    assert [round(gamma, 2) for gamma in gammas["space", 4.0]] == [4, 2.2, 1.49, 1.05, 0.72, 0.46, 0.25]
    assert [round(gamma, 2) for gamma in gammas["trial", 4.0]] == [4, 2.82, 2.04, 1.45, 0.98, 0.59, 0.25]


def test_counting_the_trials_networks_is_an_option_that_keeps_keys(space: Space) -> None:
    key = {
        name: Trial(RunConfig.from_json({"schedule": {"name": "calr", **own}})).key
        for name, own in {"none": {}, "default": {"count_at": "space"}, "trial": {"count_at": "trial"}}.items()
    }
    assert key["none"] == key["default"] != key["trial"]
    with pytest.raises(InvalidConfiguration, match="count_at is 'cell'; allowed: space, trial"):
        schedules.CaLR(count_at="cell")
    with pytest.raises(
        InvalidConfiguration, match="does not count parameters-released at any size; .*parameters, flops"
    ):
        schedules.CaLR(complexity="parameters-released", count_at="trial").bind(space)


@pytest.mark.parametrize("name", ["mobilenet-reduced", "darts", "autoformer-reduced"])
def test_other_spaces_count_the_trials_networks_in_any_case(name: str) -> None:
    space = SPACES.get(name)()
    rng = random.Random(0)
    paths = [space.sample(rng) for _ in range(5)]
    own, trial = (schedules.CaLR(count_at=counted).decay_ratio(space) for counted in ("space", "trial"))
    assert [own(path) for path in paths] == [trial(path) for path in paths]


def test_calr_counts_as_it_is_told(space: Space) -> None:
    path = (2,) * 6
    by_count = {c: schedules.CaLR(4.0, "log", c).decay_ratio(space)(path) for c in space.complexity_counts}
    assert len(set(by_count.values())) == len(space.complexity_counts) == 3


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (schedules.Constant(), (1.0, 1.0, 1.0)),
        (schedules.Cosine(), (1.0, 0.5, 0.0)),
        (schedules.Cosine(final=0.04), (1.0, 0.52, 0.04)),
        (schedules.Polynomial(), (1.0, 0.5, 0.0)),
        (schedules.Polynomial(power=3), (1.0, 0.125, 0.0)),
        (schedules.Polynomial(power=0.25), (1.0, 0.5**0.25, 0.0)),
    ],
)
def test_schedules_without_regard_to_the_path(space: Space, schedule: Any, values: tuple[float, ...]) -> None:
    factor = schedule.bind(space)
    assert not schedule.depends_on_path
    for path in (SMALLEST, LARGEST):
        assert [factor(path, progress) for progress in (0.0, 0.5, 1.0)] == pytest.approx(list(values), abs=1e-12)


def test_cosine_is_a_cosine_and_no_line(space: Space) -> None:
    factor = schedules.Cosine().bind(space)
    assert factor(SMALLEST, 1 / 3) == pytest.approx(0.75)
    assert factor(SMALLEST, 2 / 3) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("CaLR", {"gamma_prime": 0.0}, "gamma_prime must be above 0, not 0"),
        ("CaLR", {"gamma_prime": -4.0}, "gamma_prime must be above 0, not -4"),
        ("CaLR", {"function": "sqrt"}, "'sqrt'; allowed: log, linear, exp, reversed"),
        ("Cosine", {"final": -0.1}, r"final must be in \[0, 1\]"),
        ("Cosine", {"final": 1.1}, r"final must be in \[0, 1\]"),
        ("Polynomial", {"power": 0.0}, "power must be above 0"),
        ("Polynomial", {"power": -1.0}, "power must be above 0"),
    ],
)
def test_bad_values_are_refused(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        getattr(schedules, kind)(**options)


def test_an_unknown_count_is_refused_before_training(space: Space) -> None:
    with pytest.raises(InvalidConfiguration, match="'latency'.*parameters, parameters-released, flops"):
        schedules.CaLR(complexity="latency").bind(space)


@pytest.mark.parametrize("function", ["log", "reversed"])
def test_the_logarithm_of_nothing_is_refused_with_a_way_out(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    space = SPACES.get("nasbench201")()
    monkeypatch.setattr(type(space), "complexity_range", lambda self, count="parameters": (0, 10))
    with pytest.raises(InvalidConfiguration, match="schedule.function=linear"):
        schedules.CaLR(function=function).bind(space)
    schedules.CaLR(function="linear").bind(space)


def test_the_control_of_the_average_rate_has_calrs_mean_factor_at_every_step(space: Space) -> None:
    calr, control = schedules.CaLR().bind(space), schedules.MeanCaLR().bind(space)
    architectures = list(space)
    for progress in (0.0, 0.1, 0.37, 0.5, 0.9, 0.999, 1.0):
        mean = sum(calr(path, progress) for path in architectures) / len(architectures)
        assert control(SMALLEST, progress) == control(LARGEST, progress) == pytest.approx(mean, rel=1e-12)
    times = [step / 1000 for step in range(1001)]
    assert sum(control(SMALLEST, time) for time in times) / 1001 == pytest.approx(0.338, abs=0.001)
    assert not schedules.MeanCaLR.depends_on_path


def test_the_control_of_the_average_rate_keeps_calrs_options(space: Space) -> None:
    options = {"gamma_prime": 3.0, "function": "reversed", "complexity": "flops", "final": 0.1}
    calr, control = schedules.CaLR(**options).bind(space), schedules.MeanCaLR(**options).bind(space)
    assert control(SMALLEST, 0.6) == pytest.approx(sum(calr(path, 0.6) for path in space) / 15_625, rel=1e-12)


def test_the_mean_factor_of_a_space_that_cannot_be_listed_is_that_of_a_fixed_sample() -> None:
    space = SPACES.get("mobilenet")()
    calr, control = schedules.CaLR().bind(space), schedules.MeanCaLR().bind(space)
    path = space.sample(random.Random(0))
    others = [calr(space.sample(rng), 0.5) for rng in [random.Random(1)] for _ in range(5000)]
    error = statistics.stdev(others) * math.sqrt(1 / 5000 + 1 / schedules.SAMPLED)
    assert control(path, 0.5) == pytest.approx(statistics.fmean(others), abs=4 * error)
    assert schedules.MeanCaLR().bind(space)(path, 0.5) == control(path, 0.5)


def test_permuted_decay_ratios_are_distributed_as_calrs_are(space: Space) -> None:
    """Over all architectures and several seeds: the share of each γ, within its sampling error."""
    calr = schedules.CaLR().bind(space)
    shares = Counter(round(calr(path, 0.5), 9) for path in space)
    assert len(shares) == 28
    classes = sorted({space.canonical(path) for path in space})
    drawn: Counter[float] = Counter()
    seeds = 5
    for seed in range(seeds):
        permuted = schedules.PermutedCaLR().of_trial(space, seed)
        drawn.update(round(permuted(path, 0.5), 9) for path in classes)
    draws = seeds * len(classes)
    expected = [shares[factor] / 15_625 * draws for factor in shares]
    assert drawn.keys() <= shares.keys()
    assert chisquare([drawn[factor] for factor in shares], expected).pvalue > 0.001


def test_permuted_decay_ratios_do_not_depend_on_size(space: Space) -> None:
    permuted = schedules.PermutedCaLR().of_trial(space, 3)
    classes = sorted({space.canonical(path) for path in space})
    sizes = [space.complexity(path) for path in classes]
    assert abs(pearsonr(sizes, [permuted(path, 0.5) for path in classes]).statistic) < 4 / math.sqrt(len(classes))
    assert schedules.PermutedCaLR.depends_on_path


def test_permuted_decay_ratios_depend_on_the_network_and_the_seed_alone(space: Space) -> None:
    one, same, other = (schedules.PermutedCaLR().of_trial(space, seed) for seed in (1, 1, 2))
    paths = [space.sample(rng) for rng in [random.Random(0)] for _ in range(200)]
    assert [one(path, 0.5) for path in paths] == [same(path, 0.5) for path in reversed(paths)][::-1]
    assert sum(one(path, 0.5) != other(path, 0.5) for path in paths) > 150
    assert all(one(path, 0.5) == one(space.canonical(path), 0.5) for path in paths)
    darts = SPACES.get("darts")()
    permuted = schedules.PermutedCaLR().of_trial(darts, 0)
    path = darts.sample(random.Random(0))
    unused = next(d for d in darts.conditions if not darts.matters(path, d))
    changed = tuple((c + 1) % darts.choices[d] if d == unused else c for d, c in enumerate(path))
    assert permuted(path, 0.5) == permuted(changed, 0.5)


def test_a_training_permutes_decay_ratios_by_the_seed_of_its_trial(space: Space) -> None:
    path = (3, 2, 3, 0, 1, 4)
    for seed in (0, 1, 5):
        small = {"network": {"width": 4, "depth": 1}, "train": {"epochs": 1}, "seed": seed}
        config = RunConfig.from_json({"schedule": "calr-permuted", **small})
        supernets = build_supernets(config, DATASETS.get("digits")())
        _, (training,) = prepare(config, supernets, 10)
        assert training.factor(path, 0.5) == schedules.PermutedCaLR().of_trial(space, seed)(path, 0.5)
        assert training.factor_depends_on_path
