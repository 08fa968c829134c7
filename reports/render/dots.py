"""Points per seed as a drawing for the page: one line per row of a table, a point per seed, a bar at the mean.

The page's own style colours it, so that it is legible in light and dark; its texts are texts.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..figures import legend_name
from ..values import Table, TableRow, Value, ValueColumn, label_text

WIDTH, PITCH, TOP, BOTTOM, RIGHT = 430, 17, 8, 22, 14
"""Units of the drawing: its width, a line's height, and room around the plot."""
LETTER, LONGEST = 6.1, 32
"""The width of a letter, and the number of letters of a label."""
TICKS = 4
MOST = 16
"""Lines of a drawing; of longer tables there are several side by side."""


@dataclass(frozen=True)
class Line:
    """A row: its label, its values by seed, and how it looks."""

    label: str
    values: tuple[tuple[int | None, float, str], ...]
    """By seed, the value and its run."""
    look: str
    rule: bool
    """Whether a rule separates it from the line above."""


def dots(table: Table, metric: str, neutral: float | None = None) -> list[dict[str, Any]]:
    """Drawings of the column with that metric, on each data set; none where there are fewer than two values."""
    found = []
    for place, column in enumerate(table.columns):
        lines = _lines(table, place) if column.metric == metric else []
        if sum(len(line.values) for line in lines) > 1:
            frame = _frame(lines, neutral if column.best == "nearest" else None)
            found += [_drawing(table, column, part, frame) for part in _parts(lines)]
    return found


def _parts(lines: Sequence[Line]) -> list[Sequence[Line]]:
    """The lines in parts of about equal length, which begin where blocks do if these are short enough."""
    count = -(-len(lines) // MOST)
    parts: list[Sequence[Line]] = []
    start = 0
    for number in range(1, count + 1):
        end = -(-len(lines) * number // count)
        rules = [place for place in range(start + 1, end + 1) if place == len(lines) or lines[place].rule]
        end = rules[-1] if rules and number < count else end
        parts.append(lines[start:end])
        start = end
    return parts


def _lines(table: Table, place: int) -> list[Line]:
    lines: list[Line] = []
    for block in table.blocks:
        own: list[Line] = []
        for row in block:
            value = row.values[place]
            if row.source == "runs" and row.name is None and value.numbers:
                own.append(Line(_label(table, row), _measured(value), _look(row, value), bool(lines) and not own))
        lines += own
    return lines


def _measured(value: Value) -> tuple[tuple[int | None, float, str], ...]:
    return tuple((one.seed, one.value, one.run_id) for one in value.measurements if one.value is not None)


def _label(table: Table, row: TableRow) -> str:
    named = {name: label for name, label in zip(table.labels, row.labels, strict=True) if label is not None}
    text = legend_name(named) or ", ".join(map(label_text, row.labels))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _look(row: TableRow, value: Value) -> str:
    return "best" if value.best else "shaded" if row.shaded else ""


@dataclass(frozen=True)
class Frame:
    """What the drawings of one column share."""

    low: float
    high: float
    left: int
    """Where the plot begins, right of the labels."""
    neutral: float | None

    def x(self, number: float) -> float:
        """Where a number stands."""
        return round(self.left + (number - self.low) / (self.high - self.low) * (WIDTH - RIGHT - self.left), 1)


def _frame(lines: Sequence[Line], neutral: float | None) -> Frame:
    numbers = [number for line in lines for _, number, _ in line.values] + ([] if neutral is None else [neutral])
    low, high = min(numbers), max(numbers)
    room = (high - low) * 0.04 or abs(high) * 0.1 or 1.0
    left = round(max(len(line.label) for line in lines) * LETTER + 10)
    return Frame(low - room, high + room, left, neutral)


def _drawing(table: Table, column: ValueColumn, lines: Sequence[Line], frame: Frame) -> dict[str, Any]:
    """What the template draws: everything in units of the drawing."""
    bottom = TOP + PITCH * len(lines)
    several = max(len(line.values) for line in lines) > 1
    where = f"{column.label}, {column.dataset}" if table.several else column.label
    return {
        "title": f"{where}: a point per seed, a bar at the mean" if several else f"{where}: one seed",
        "width": WIDTH,
        "height": bottom + BOTTOM,
        "right": WIDTH - RIGHT,
        "top": TOP,
        "bottom": bottom,
        "neutral": None if frame.neutral is None else frame.x(frame.neutral),
        "ticks": [(frame.x(tick), f"{tick:g}") for tick in _ticks(frame.low, frame.high)],
        "lines": [
            {
                "label": line.label,
                "look": line.look,
                "rule": TOP + PITCH * number if line.rule and number else None,
                "y": TOP + PITCH * (number + 0.5),
                "mean": frame.x(statistics.fmean(value for _, value, _ in line.values)),
                "points": [
                    (frame.x(value), _named(seed, value, run, column.digits)) for seed, value, run in line.values
                ],
            }
            for number, line in enumerate(lines)
        ],
    }


def _named(seed: int | None, value: float, run: str, digits: int) -> str:
    return f"{value:.{digits}f}" if seed is None else f"seed {seed}: {value:.{digits}f}, run {run}"


def _ticks(low: float, high: float) -> list[float]:
    from matplotlib.ticker import MaxNLocator

    found = MaxNLocator(TICKS, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return [round(float(tick), 9) for tick in found if low <= tick <= high]
