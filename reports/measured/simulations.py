"""Simulations and measurements behind sentences of docs/measures.md, printed as tables.

python reports/measured/simulations.py spread      pooled and within clusters, without and with momentum separation
python reports/measured/simulations.py nulls       CB and C³ of predictors without bias (needs NAS-Bench-201)
python reports/measured/simulations.py rates       the mean factor of the learning rate, with cosine and with CaLR
python reports/measured/simulations.py proxies     rank correlations of proxies (needs NAS-Bench-201 and CIFAR-10)
python reports/measured/simulations.py gradients   the same of two of them, for more and for larger networks
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Rows = list[tuple[str, ...]]

CLUSTERS = 5
STEPS = 2000
SIZE = 200


def spread(between: float, separated: bool, seed: int = 0) -> dict[str, float]:
    """What `observe.spread_within` measures of gradients that are made up.

    Noise of deviation 1 around the mean of their cluster; the means of the clusters have the deviation `between`.
    """
    import torch

    from harness.components.clustering import Clustering
    from harness.components.discovery import component
    from harness.training.observers.spread import Spread
    from harness.training.separation import SeparatedMomentum

    rng = torch.Generator().manual_seed(seed)
    weights = torch.nn.Parameter(torch.zeros(SIZE, dtype=torch.double))
    settings = component("methods.optimisers").SGD(
        learning_rate=1.0, momentum=0.9, nesterov=False, weight_decay=0.0, clip=None
    )
    momentum = SeparatedMomentum([weights], settings)
    means = between * torch.randn(CLUSTERS, SIZE, generator=rng, dtype=torch.double)
    means -= means.mean(0)
    clustering = Clustering(CLUSTERS, lambda path: path[0])
    for step in range(-STEPS // 4, STEPS):
        if step == 0:  # the buffers have forgotten that they began with nothing
            momentum.spread = Spread([weights], clustering)
        cluster = int(torch.randint(CLUSTERS, (1,), generator=rng))
        weights.grad = means[cluster] + torch.randn(SIZE, generator=rng, dtype=torch.double)
        if momentum.spread is not None:
            momentum.spread.begin([(cluster,)])
        momentum.step(cluster if separated else 0, 0.0)
    assert momentum.spread is not None
    return momentum.spread.measured()


def print_spread() -> Rows:
    names = ("gradient_spread", "gradient_share_between", "momentum_spread", "momentum_spread_within")
    rows: Rows = [("deviation between clusters", *(f"{name}, without → with MS" for name in names))]
    for between in (0.0, 0.5, 1.0):
        plain, separated = spread(between, False), spread(between, True)
        rows.append((f"{between:g}", *(f"{plain[name]:.2f} → {separated[name]:.2f}" for name in names)))
    return rows


def print_nulls() -> Rows:
    """Truth of CIFAR-10 with noise that knows no sizes, over the best 30 %."""
    from harness.components.benchmark import benchmark_for
    from harness.metrics import neutral_complexity_bias

    benchmark = benchmark_for("nasbench201", "nasbench201")
    truth = benchmark.accuracies("cifar10")
    best = np.argsort(-truth, kind="stable")[: -(-len(truth) * 3 // 10)]
    true = truth[best]
    sizes = np.array([float(benchmark.space.complexity(benchmark.space.architecture(int(n)))) for n in best])
    rng = np.random.default_rng(0)
    rows: Rows = [("predictor", "CB", "C³")]
    for noise in (0.1, 0.4, 0.8, 1.5, 3.0, 12.0):
        made = [true + noise * rng.standard_normal(len(true)) for _ in range(3)]
        rows.append(_described(f"truth + noise of {noise:g} points", made, true, sizes))
    for slope in (0.5, 1.0, 2.0):
        rows.append(_described(f"60 + {slope:g}·(truth − mean)", [60 + slope * (true - true.mean())], true, sizes))
    rows.append(("random numbers", f"{neutral_complexity_bias(true, sizes):.3f}", ""))
    return rows


def _described(name: str, made: list[Any], true: Any, sizes: Any) -> tuple[str, ...]:
    from harness.metrics import complexity_bias, complexity_convergence

    biases = [complexity_bias(one, true, sizes) for one in made]
    convergences = [complexity_convergence(one, true, sizes) for one in made]
    bias = statistics.fmean(biases)
    return name, "–" if np.isnan(bias) else f"{bias:.3f}", f"{statistics.fmean(convergences):+.2f}"


def mean_factor(schedule: str, steps: int = 1000) -> float:
    """The mean, over training and over architectures, of the factor of the learning rate."""
    from harness.components.registries import SCHEDULES, SPACES

    factor = SCHEDULES.get(schedule)().bind(SPACES.get("nasbench201")())
    # That of `calr-mean` is the mean of CaLR's over all architectures.
    return statistics.fmean(factor((0, 0, 0, 0, 0, 0), (step + 0.5) / steps) for step in range(steps))


def print_rates() -> Rows:
    rows = [("schedule", "mean factor")]
    return [*rows, *((name, f"{mean_factor(schedule):.2f}") for name, schedule in _RATES.items())]


PUBLISHED_RHO = {"grad-norm": 0.58, "snip": 0.58, "synflow": 0.74, "naswot": 0.73}
"""Spearman's ρ over the whole space on CIFAR-10 (Abdelfattah et al., 2021; there NASWOT is jacob_cov, a forerunner)."""
DEPTHS = {1: 400, 5: 150}
"""By cells per stage, 1 in `small` and 5 in the benchmark, how many architectures."""


LARGER = (("cifar10-16", 8, 1050), ("cifar10", 16, 150))
"""Data set, channels and number of architectures, for the two proxies by gradients: more of them, and at full size."""


def print_proxies() -> Rows:
    """Spearman's ρ of every proxy with the accuracies of CIFAR-10, over random architectures, with its standard error.

    The standard error is over bootstrap samples of the architectures.
    """
    from harness.components.registries import PROXIES
    from harness.study.references import reference_names

    names = [name for name in reference_names() if name.startswith("az") or PROXIES.get(name).order in range(1, 20)]
    names.remove("random")
    found = [correlations(names, "cifar10-16", 8, depth, count) for depth, count in DEPTHS.items()]
    heads = (f"{depth} cell{'s' * (depth > 1)} per stage, {count} architectures" for depth, count in DEPTHS.items())
    rows: Rows = [("proxy", "published", *heads)]
    published = {name: f"{PUBLISHED_RHO[name]:.2f}" if name in PUBLISHED_RHO else "" for name in names}
    return [*rows, *((name, published[name], *(one[name] for one in found)) for name in names)]


def print_gradients() -> Rows:
    """The same for gradient norm and SNIP alone, 5 cells per stage."""
    names = ["grad-norm", "snip"]
    rows: Rows = [("images", "channels", "architectures", *names)]
    for dataset, width, count in LARGER:
        rows.append((dataset, f"{width}", f"{count}", *correlations(names, dataset, width, 5, count).values()))
    return rows


def correlations(names: list[str], dataset: str, width: int, depth: int, count: int) -> dict[str, str]:
    """By proxy, Spearman's ρ with the accuracies of CIFAR-10 over so many random architectures."""
    from harness.components.benchmark import benchmark_for
    from harness.components.proxy import NetworkProxy
    from harness.components.registries import DATASETS, PROXIES
    from harness.study.configuration import RunConfig
    from harness.training.proxies import ProxyScene

    benchmark = benchmark_for("nasbench201", "nasbench201")
    sample = np.random.default_rng(0).permutation(len(benchmark.accuracies("cifar10")))[:count]
    network = {"width": width, "depth": depth}
    config = RunConfig.from_json({"dataset": dataset, "benchmark": "nasbench201", "network": network})
    proxies = {name: PROXIES.get(name)() for name in names}
    together = [one for one in proxies.values() if isinstance(one, NetworkProxy)]
    scene = ProxyScene(config, DATASETS.get(dataset)(), benchmark, together=together)
    architectures = [benchmark.space.architecture(int(number)) for number in sample]
    truth, found = benchmark.accuracies("cifar10")[sample], {}
    for name, proxy in proxies.items():
        scores = proxy.predict(scene, architectures)
        found[name] = _correlation(np.array([scores[one] for one in architectures]), truth)
    return found


def _correlation(scores: Any, truth: Any) -> str:
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    drawn = [rng.integers(len(truth), size=len(truth)) for _ in range(200)]
    error = np.std([spearmanr(scores[one], truth[one]).statistic for one in drawn], ddof=1)
    return f"{spearmanr(scores, truth).statistic:.2f} ± {error:.2f}"


_RATES = {"cosine": "cosine", "CaLR": "calr-mean"}
PRINTED: dict[str, Callable[[], Rows]] = {
    "spread": print_spread,
    "nulls": print_nulls,
    "rates": print_rates,
    "proxies": print_proxies,
    "gradients": print_gradients,
}


def lines(rows: Rows) -> Iterator[str]:
    """A Markdown table."""
    yield f"| {' | '.join(rows[0])} |"
    yield "|" + ":--|" * len(rows[0])
    yield from (f"| {' | '.join(row)} |" for row in rows[1:])


if __name__ == "__main__":
    if sys.argv[1:2] == [] or sys.argv[1] not in PRINTED:
        sys.exit(f"give one of: {', '.join(PRINTED)}")
    print("\n".join(lines(PRINTED[sys.argv[1]]())))
