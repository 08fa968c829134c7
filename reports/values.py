"""The parts of a table: values with the measurements behind them, columns, rows. Knows no study and no format."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Label = str | bool | None
"""An entry of a label column; None where it has no meaning (reference rows)."""

MARK = "†"
"""Printed after every value that is quoted, not measured."""
TIED = "≈"
"""Printed after every value that cannot be told from the best one."""


@dataclass(frozen=True)
class Measurement:
    """The result of one seed: a value, or why there is none. `state` is "done" or says what is wrong.

    A value that was not measured by a run ("quoted", "truth") has no seed, and `run_id` names its source.
    """

    seed: int | None
    value: float | None
    run_id: str
    state: str
    passes: int | None = None
    """The forward-backward passes of the run's training."""


@dataclass(frozen=True)
class Quotation:
    """A value as printed in a publication, and where it is printed."""

    mean: str
    deviation: str
    place: str
    elsewhere: bool = False
    """Whether it is for another data set than the column's."""


@dataclass(frozen=True)
class Value:
    """One value of a table: the measurements of all requested seeds, and how they are shown."""

    measurements: tuple[Measurement, ...]
    digits: int
    best: bool = False
    quotation: Quotation | None = None
    tied: bool = False
    """Whether the seeds do not tell it from the best."""

    @property
    def numbers(self) -> list[float]:
        return [one.value for one in self.measurements if one.value is not None]

    @property
    def mean(self) -> str:
        """The mean as shown; empty without measurements."""
        if self.quotation:
            return self.quotation.mean
        return shown(statistics.fmean(self.numbers), self.digits) if self.numbers else ""

    @property
    def deviation(self) -> str:
        """The sample standard deviation as shown; empty with fewer than two measurements."""
        if self.quotation:
            return self.quotation.deviation
        return shown(statistics.stdev(self.numbers), self.digits) if len(self.numbers) > 1 else ""

    @property
    def count(self) -> str:
        """The number of seeds behind the value, if there are fewer than requested; otherwise empty."""
        n, asked = len(self.numbers), len(self.measurements)
        if n < asked and all(one.seed is None for one in self.measurements):
            return self.measurements[0].state  # no seeds: the value is looked up
        return f"{n} of {asked} seed{'s' * (asked > 1)}" if n < asked else ""

    @property
    def mark(self) -> str:
        """The mark that is printed after the value."""
        return MARK if self.quotation else TIED if self.tied else ""


@dataclass(frozen=True)
class ValueColumn:
    """A column of values: one metric on one data set."""

    label: str
    metric: str
    dataset: str
    digits: int
    best: str | None
    scale: float = 1.0
    once: bool = False
    """Whether the column appears for one data set only, even if there are several."""
    reference: str | float | None = None

    def of(self, metrics: Mapping[str, Any], instead: Mapping[str, str] | None = None) -> float | None:
        """The column's number from a run's metrics, in the column's unit; None if there is none.

        `instead` maps a column's metric to the metric shown in its place.
        """
        return self.scaled(look_up(metrics, (instead or {}).get(self.metric, self.metric)))

    def neutral(self, metrics: Mapping[str, Any]) -> float | None:
        """The column's reference in its own unit; looked up in a run's metrics if it names a metric."""
        if isinstance(self.reference, str):
            return self.scaled(look_up(metrics, self.reference))
        return self.reference

    def scaled(self, number: Any) -> float | None:
        return None if number is None else float(number) * self.scale


@dataclass(frozen=True)
class TableRow:
    """A row; `name` is that of a reference or of imported predictions, None for a row of the study."""

    labels: tuple[Label, ...]
    values: tuple[Value, ...]
    number: int
    name: str | None = None
    shaded: bool = False
    source: str = "runs"
    """One of `harness.study.layout.SOURCES`, "reference", or "imported"."""


@dataclass(frozen=True)
class Table:
    """A whole table. Blocks are the rows between two rules; references and imported predictions come last."""

    study: str
    preset: str
    title: str
    scale: str
    """What every caption must say: preset, data sets, seeds, epochs, width, depth, overrides, conditions."""
    labels: tuple[str, ...]
    group: int | None
    """Which label column is shown once per block."""
    columns: tuple[ValueColumn, ...]
    blocks: tuple[tuple[TableRow, ...], ...]
    notes: tuple[str, ...]
    missing: tuple[str, ...] = field(default=())
    """What the table should show but cannot, one line each."""
    warnings: tuple[str, ...] = field(default=())
    """The notes that a reader must not miss, also where a format shows no notes: unequal passes, runs not shown."""
    lacking: str | None = None
    """The command that makes the references, if they were asked for and are not stored."""

    @property
    def datasets(self) -> list[str]:
        """The data sets that have columns of their own."""
        return list(dict.fromkeys(column.dataset for column in self.columns if not column.once))

    @property
    def several(self) -> bool:
        """Whether headings must name the data set."""
        return len(self.datasets) > 1

    @property
    def caption(self) -> str:
        return f"{self.title}. {self.scale}"

    def spanned(self, block: Sequence[TableRow]) -> bool:
        """Whether a block's label in the group's column is shown once, for all its rows."""
        group = self.group
        return group is not None and len(block) > 1 and len({row.labels[group] for row in block}) == 1

    def has_text(self, place: int) -> bool:
        """Whether a label column holds words, not only yes and no."""
        return any(isinstance(row.labels[place], str) for block in self.blocks for row in block)


def look_up(metrics: Mapping[str, Any], path: str) -> Any:
    """The value under a key; dots separate nested keys. None if there is no value."""
    if path in metrics:
        return metrics[path]
    first, _, rest = path.partition(".")
    inner = metrics.get(first)
    return look_up(inner, rest) if rest and isinstance(inner, Mapping) else None


def label_text(label: Label) -> str:
    """A label as text: ✓ and – for yes and no."""
    return "" if label is None else label if isinstance(label, str) else "✓" if label else "–"


def row_name(labels: Mapping[str, str | bool]) -> str:
    """The name of a row: its labels, separated by commas."""
    words = [label if isinstance(label, str) else name if label else f"no {name}" for name, label in labels.items()]
    return ", ".join(word for word in words if word not in ("", "–"))


def shown(number: float, digits: int) -> str:
    """A number as tables print it: no minus before a zero."""
    text = f"{number:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text


def signed(text: str) -> str:
    """A number in print with its sign; 0 has none."""
    return text if text.startswith("-") or float(text) == 0 else f"+{text}"
