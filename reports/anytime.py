"""Any-time curves: what a supernet in training is worth, over what it has cost so far. Knows no drawing.

τ, and regret and true accuracy of the best-ranked of the same architectures, over passes, updates, seconds and
device-hours of training. Observing is not counted. A run spreads its cost evenly over its epochs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping

import numpy as np

from harness.components.registries import SPACES
from harness.seeds import make_rng
from harness.study.configuration import COMPONENTS

from .evidence import Evidence, Findings
from .figure_values import Curve, FigureValue, LinePanel, Panel
from .figures import legend_name, observed
from .grid import Grid
from .notes import scale
from .values import Table, row_name, shown

NAME = "anytime"

GRID = 41
"""Points of the common grid."""

VALUES = {"kendall_tau": "Kendall's τ", "selected_regret": "Regret (points)", "selected_top1": "Top-1 acc. (%)"}
"""The curves that are shown, and their names."""

AXES: dict[str, Callable[[Evidence], float | None]] = {
    "Passes": lambda one: _cost(one, "passes"),
    "Updates": lambda one: _updates(one),
    "Seconds": lambda one: _seconds(one),
    "Device-hours": lambda one: _device_hours(one),
}
"""By axis, what the whole training of a run has cost."""

Points = list[tuple[float, float]]


def anytime_figures(findings: Findings, table: Table) -> list[FigureValue]:
    """A figure for each data set; none where no run observes τ at two epochs or more."""
    figures = []
    for dataset in findings.preset.datasets:
        panels: list[Panel] = []
        for metric, y in VALUES.items():
            for x in AXES:
                curves = tuple(_curves(findings, dataset, metric, x))
                panels += [LinePanel("", x, y, curves)] if curves else []
        if not panels:
            continue
        several = len(findings.preset.datasets) > 1
        runs = [one.run.id for one in findings.counted if one.run and len(observed(one, "kendall_tau")) > 1]
        figures.append(
            FigureValue(
                study=findings.study.name,
                name=f"{NAME}-{dataset}" if several else NAME,
                title=f"{table.title}: any-time performance{f' on {dataset}' if several else ''}",
                scale=scale(findings, "Lines are means over the seeds on a common grid, bands span them."),
                panels=tuple(panels),
                notes=(
                    "Regret and top-1 are of the best-ranked of the architectures of τ. The cost is that of training, "
                    "without observing, spread evenly over the epochs.",
                ),
                runs=tuple(dict.fromkeys(runs)),
                beside=4,
            )
        )
    return figures


def anytime_grid(findings: Findings, table: Table) -> list[Grid]:
    """What each row costs until it first reaches a target τ: the least final τ of all rows, which every row reaches."""
    rows = []
    for dataset in findings.preset.datasets:
        own = _by_row(findings, dataset)
        finals = {
            number: statistics.fmean(points[max(points)] for one in runs if (points := observed(one, "kendall_tau")))
            for number, runs in own.items()
        }
        if not finals:
            continue
        target = math.floor(min(finals.values()) * 100) / 100
        for number, runs in own.items():
            steps = [(one, _first(observed(one, "kendall_tau"), target)) for one in runs]
            reached = [(one, step) for one, step in steps if step is not None]
            spent = [
                _shown([whole * step / _epochs(one) for one, step in reached if (whole := cost(one)) is not None])
                for cost in AXES.values()
            ]
            label = row_name(findings.study.rows[number].labels)
            seeds = f"{len(reached)} of {len(runs)}"
            rows.append((label, dataset, shown(finals[number], 3), shown(target, 2), seeds, *spent))
    if not rows:
        return []
    headings = ("Row", "Data set", "Final τ", "Target τ", "Seeds that reach it", *AXES)
    note = (
        "The target is the least final τ of all rows, rounded down. Costs are means over the seeds that reach it, "
        "until the first observation at or above it."
    )
    return [
        Grid(
            name=f"{table.study}-target",
            title=f"{table.title}: time to a target τ",
            scale=table.scale,
            headings=headings,
            rows=tuple(rows),
            numeric=(False, False, True, True, False, *(True,) * len(AXES)),
            notes=(note,),
        )
    ]


def on_grid(seeds: list[Points], grid: list[float]) -> tuple[list[float], list[list[float]]]:
    """The places of the grid that all seeds span, with both ends, and there the value of each seed, interpolated."""
    low, high = max(points[0][0] for points in seeds), min(points[-1][0] for points in seeds)
    places = sorted({low, high, *(x for x in grid if low < x < high)}) if low <= high else []
    values = [np.interp(places, [x for x, _ in points], [y for _, y in points]) for points in seeds]
    return places, np.transpose(values).tolist()


def _curves(findings: Findings, dataset: str, metric: str, axis: str) -> list[Curve]:
    seeds: dict[int, list[Points]] = {}
    for number, runs in _by_row(findings, dataset).items():
        for one in runs:
            whole, points = AXES[axis](one), observed(one, metric)
            if whole is not None and len(points) > 1:
                own = [(whole * step / _epochs(one), value) for step, value in sorted(points.items())]
                seeds.setdefault(number, []).append(own)
    if not seeds:
        return []
    every = [points for several in seeds.values() for points in several]
    ends = min(points[0][0] for points in every), max(points[-1][0] for points in every)
    grid = np.linspace(*ends, GRID).tolist()
    found = []
    for number, several in seeds.items():
        places, values = on_grid(several, grid)
        if not places:
            continue
        span = [tuple(limit(at) for at in values) if len(several) > 1 else () for limit in (min, max)]
        label = legend_name(findings.study.rows[number].labels)
        found.append(Curve(label, tuple(places), tuple(map(statistics.fmean, values)), *span))
    return found


def _by_row(findings: Findings, dataset: str) -> dict[int, list[Evidence]]:
    """By row, the runs on a data set that observe τ at two epochs or more."""
    found: dict[int, list[Evidence]] = {}
    for one in findings.counted:
        if one.request.dataset == dataset and len(observed(one, "kendall_tau")) > 1:
            found.setdefault(one.request.row, []).append(one)
    return found


def _first(points: Mapping[float, float], target: float) -> float | None:
    """The first step at which a curve is at or above the target."""
    return min((step for step, value in points.items() if value >= target), default=None)


def _shown(costs: list[float]) -> str:
    if not costs:
        return ""
    mean = statistics.fmean(costs)
    return shown(mean, 0 if mean >= 100 else 1 if mean >= 1 else 5)


def _epochs(one: Evidence) -> float:
    """Epochs of all supernets together: the unit of a curve's steps."""
    config = one.request.trial.config
    method, space = config.method.build(COMPONENTS["method"], "method"), SPACES.get(config.space)()
    parts = len(method.parts(space, make_rng(config.seed, "split")))
    return float(max(config.train.epochs * parts, *observed(one, "kendall_tau")))


def _cost(one: Evidence, key: str) -> float | None:
    cost = (one.run.cost if one.run else None) or {}
    value = cost.get(key)
    return None if value is None else float(value)


def _updates(one: Evidence) -> float | None:
    config = one.request.trial.config
    passes = _cost(one, "passes")
    paths = config.method.build(COMPONENTS["method"], "method").paths_per_step(SPACES.get(config.space)())
    return None if passes is None else passes / paths


def _seconds(one: Evidence) -> float | None:
    stages = ((one.run.cost if one.run else None) or {}).get("stage_seconds") or {}
    return None if "train" not in stages else float(stages["train"])


def _device_hours(one: Evidence) -> float | None:
    seconds = _seconds(one)
    return None if seconds is None else seconds * (_cost(one, "ranks") or 1.0) / 3600
