"""Equally named rows compared over data sets and spaces, by their ranks. Knows no format and no drawing.

A block is a data set of a space. In it a row has one value, the mean over its seeds, so seeds count once. Rows are
compared pair by pair with Wilcoxon's signed-rank test over the blocks and Holm's rule over the pairs: a verdict on two
rows does not depend on the others, but for the number of pairs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from harness.errors import InvalidConfiguration
from harness.statistics import ALPHA, holm
from harness.study.comparisons import main_column

from .figure_values import FigureValue, RankPanel
from .figures import legend_name
from .grid import Grid
from .values import Table, TableRow, Value, ValueColumn, row_name, shown

if TYPE_CHECKING:
    from .report import Section

NAME = "across"
LEAST_BLOCKS = 5

Place = tuple[str, str]
"""A space and a data set."""


@dataclass(frozen=True)
class Block:
    """A data set of a space, judged by one metric: by the name of a row, its column and its value, of the first study
    that has it."""

    place: Place
    metric: str
    entries: Mapping[str, tuple[ValueColumn, Value]]

    def ranks(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """The ranks of these rows, 1 the best; equal values share the mean of their ranks."""
        gains = self.gains(names)
        return np.array([np.sum(gains > one) + (np.sum(gains == one) + 1) / 2 for one in gains])

    def gains(self, names: Sequence[str]) -> npt.NDArray[np.float64]:
        """The values of these rows, turned so that more is better."""
        gains = []
        for column, value in map(self.entries.__getitem__, names):
            mean = statistics.fmean(value.numbers)
            target = column.reference if isinstance(column.reference, float) else 0.0
            gains.append({"min": -mean, "nearest": -abs(mean - target)}.get(column.best or "", mean))
        return np.array(gains)


@dataclass(frozen=True)
class Across:
    """The figure, with the ranks, the pairs and the values behind it."""

    figure: FigureValue | None
    grids: tuple[Grid, ...]


def across(sections: Sequence[Section], drawn: bool = True) -> Across:
    """Compare the rows that every block of these sections has.

    Raises `InvalidConfiguration` for fewer than `LEAST_BLOCKS` blocks, or fewer than two such rows.
    """
    blocks = list(_blocks(sections))
    if len(blocks) < LEAST_BLOCKS:
        listed = ", ".join(f"{dataset} ({space})" for space, dataset in (one.place for one in blocks)) or "none"
        raise InvalidConfiguration(
            f"--across needs at least {LEAST_BLOCKS} blocks (data set × space) with runs; there are {len(blocks)}: "
            f"{listed}. Seeds are not blocks. Name more studies, or a preset with more data sets"
        )
    every = list(dict.fromkeys(name for one in blocks for name in one.entries))
    names = [name for name in every if all(name in one.entries for one in blocks)]
    if len(names) < 2:
        counts = {name: sum(name in one.entries for one in blocks) for name in every}
        listed = "; ".join(f"{name} in {count}" for name, count in sorted(counts.items(), key=lambda one: -one[1]))
        raise InvalidConfiguration(
            f"--across compares rows of equal names that all {len(blocks)} blocks (data set × space) have; "
            f"{len(names)} of {len(every)} is in all: {listed}"
        )
    means = np.mean([one.ranks(names) for one in blocks], axis=0)
    order = sorted(range(len(names)), key=lambda number: (means[number], number))
    names, means = [names[number] for number in order], means[order]
    gains = np.array([one.gains(names) for one in blocks])
    pairs = list(combinations(range(len(names)), 2))
    raw = [signed_rank(gains[:, first] - gains[:, second]) for first, second in pairs]
    adjusted = holm(raw)
    apart = {pair for pair, p in zip(pairs, adjusted, strict=True) if p <= ALPHA}
    groups = tuple(cliques(len(names), apart))
    scale = _scale(sections, blocks, len(pairs))
    notes = _notes(blocks, names, [name for name in every if name not in names], groups, apart)
    title = "Rows across data sets and spaces, by mean rank"
    figure = FigureValue(
        study=NAME,
        name="diagram",
        title=title,
        scale=scale,
        panels=(RankPanel("", "Mean rank", tuple(names), tuple(map(float, means)), groups),),
        notes=notes,
        runs=tuple(dict.fromkeys(run for one in blocks for name in names for run in _runs(one.entries[name][1]))),
    )
    ranks = Grid(
        name=f"{NAME}-ranks",
        title=title,
        scale=scale,
        headings=("Row", "Mean rank", "Not distinguishable from"),
        rows=tuple(
            (name, shown(float(means[place]), 2), ", ".join(_alike(place, names, apart)) or "–")
            for place, name in enumerate(names)
        ),
        numeric=(False, True, False),
        notes=notes,
    )
    return Across(
        figure if drawn else None,
        (ranks, _pairs(names, gains, pairs, raw, adjusted, scale), _values(blocks, names, scale)),
    )


def signed_rank(differences: npt.ArrayLike) -> float:
    """The exact two-sided p of Wilcoxon's signed-rank test: over all signs of the ranks, ties included.

    Differences of 0 are left out, as Wilcoxon did.
    """
    values = np.round(np.asarray(differences, dtype=float), 12)
    values = values[values != 0]
    sizes = np.abs(values)
    doubled = np.array([2 * np.sum(sizes < one) + np.sum(sizes == one) + 1 for one in sizes], dtype=int)
    chances = np.ones(1)  # of each sum of doubled ranks with a plus
    for rank in doubled:
        chances = (np.pad(chances, (0, rank)) + np.pad(chances, (rank, 0))) / 2
    least = int(min(doubled[values > 0].sum(), doubled[values < 0].sum()))
    return min(1.0, 2 * float(chances[: least + 1].sum()))


def cliques(count: int, apart: set[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """First and last of each longest stretch of rows, in the order of ranks, in which no pair is apart."""
    reached = 0
    for first in range(count):
        last = first
        while last + 1 < count and not any((one, last + 1) in apart for one in range(first, last + 1)):
            last += 1
        if last > max(first, reached):
            yield first, last
            reached = last


def _blocks(sections: Sequence[Section]) -> Iterator[Block]:
    """Every data set of every space, in the order of the sections, with the values of all studies that show its metric.

    The first study's main column says what the block is judged by.
    """
    metrics: dict[Place, str] = {}
    entries: dict[Place, dict[str, tuple[ValueColumn, Value]]] = {}
    for section in sections:
        main = main_column(section.findings.study)
        for number, column in enumerate(section.table.columns):
            place = (section.findings.preset.space, column.dataset)
            if main is None or metrics.get(place, main.metric) != column.metric:
                continue
            own = {
                name: (column, value)
                for row in (row for block in section.table.blocks for row in block if row.source != "quoted")
                if (value := row.values[number]).numbers and not value.quotation and (name := _row(section.table, row))
            }
            if own:
                metrics[place] = column.metric
                entries[place] = own | entries.get(place, {})
    for place, found in entries.items():
        yield Block(place, metrics[place], found)


def _row(table: Table, row: TableRow) -> str:
    labels = {name: label for name, label in zip(table.labels, row.labels, strict=True) if label is not None}
    return legend_name(labels) or row_name(labels)


def _runs(value: Value) -> list[str]:
    return [one.run_id for one in value.measurements if one.value is not None and one.seed is not None]


def _alike(place: int, names: Sequence[str], apart: set[tuple[int, int]]) -> list[str]:
    others = (other for other in range(len(names)) if other != place)
    return [names[other] for other in others if (min(place, other), max(place, other)) not in apart]


def _scale(sections: Sequence[Section], blocks: Sequence[Block], pairs: int) -> str:
    presets = ", ".join(dict.fromkeys(section.table.preset for section in sections))
    return (
        f"Preset {presets}: {len(blocks)} blocks (data set × space). Rank 1 is the best; values are means over seeds. "
        f"Wilcoxon's signed-rank test over the blocks, with Holm's rule over {pairs} pairs at {100 * ALPHA:g} %."
    )


def _notes(
    blocks: Sequence[Block],
    names: Sequence[str],
    lacking: Sequence[str],
    groups: Sequence[tuple[int, int]],
    apart: set[tuple[int, int]],
) -> tuple[str, ...]:
    pairs = len(names) * (len(names) - 1) // 2
    needed = next(n for n in range(1, 100) if 2.0 ** (1 - n) * pairs <= ALPHA)
    drawn = {pair for first, last in groups for pair in combinations(range(first, last + 1), 2)}
    undrawn = set(combinations(range(len(names)), 2)) - apart - drawn
    few = [
        f"{name} on {one.place[1]} ({count})"
        for one in blocks
        for name in names
        if (count := one.entries[name][1].count)
    ]
    found = [
        "A bar joins rows of which no two differ." if groups else "",
        "Pairs that do not differ, but have a row between them that does, share no bar." if undrawn else "",
        f"{len(blocks)} blocks decide nothing about {pairs} pair{'s' * (pairs > 1)}: that needs {needed} blocks."
        if len(blocks) < needed
        else "",
        f"Not in every block, and left out: {', '.join(lacking)}." if lacking else "",
        f"Over fewer seeds than asked for: {', '.join(few)}." if few else "",
    ]
    return tuple(filter(None, found))


def _pairs(
    names: Sequence[str],
    gains: npt.NDArray[np.float64],
    pairs: Sequence[tuple[int, int]],
    raw: Sequence[float],
    adjusted: npt.NDArray[np.float64],
    scale: str,
) -> Grid:
    rows = []
    for (first, second), p, held in zip(pairs, raw, adjusted, strict=True):
        differences = gains[:, first] - gains[:, second]
        wins = f"{np.sum(differences > 0)} : {np.sum(differences < 0)}"
        rows.append((names[first], names[second], wins, f"{p:.4f}", f"{held:.4f}", "yes" if held <= ALPHA else "no"))
    return Grid(
        name=f"{NAME}-pairs",
        title="Pairs of rows across data sets and spaces",
        scale=scale,
        headings=("Row", "Other row", "Blocks won : lost", "p (Wilcoxon)", "p (Holm)", "Differs"),
        rows=tuple(rows),
        numeric=(False, False, False, True, True, False),
    )


def _values(blocks: Sequence[Block], names: Sequence[str], scale: str) -> Grid:
    rows = []
    for one in blocks:
        for name, rank in zip(names, one.ranks(names), strict=True):
            column, value = one.entries[name]
            rows.append(
                (*one.place, name, column.label, shown(statistics.fmean(value.numbers), column.digits), f"{rank:g}")
            )
    return Grid(
        name=f"{NAME}-values",
        title="Values behind the ranks",
        scale=scale,
        headings=("Space", "Data set", "Row", "Column", "Value", "Rank"),
        rows=tuple(rows),
        numeric=(False, False, False, False, True, True),
    )
