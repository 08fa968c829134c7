"""The layout of a study: rows, columns and figures as plain values. Imports no torch.

A study declares its layout only with these classes; the reports know these classes and no particular study. The
labels of a row are also its name: figures and statements refer to a row by its labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.components.preset import FromPreset as FromPreset
from harness.components.preset import Times as Times
from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    from harness.components.space import Architecture, Space
    from harness.study.study import Request

Labels = Mapping[str, str | bool]

SOURCES = {
    "runs": "the runs of the row's settings",
    "paper": "quoted from the paper's own table",
    "truth": "the best that the ground truth holds",
}


def label_column(label: str) -> str:
    """The name of a label's column in data frames: `label_calr` for "CaLR"."""
    return "label_" + "".join(letter if letter.isalnum() else "_" for letter in label.lower())


def memory_bytes(text: str) -> int:
    """The bytes of an amount such as "512M" or "32G". Raises `InvalidConfiguration`."""
    match = re.fullmatch(r"([1-9]\d*)([KMGT])", text)
    if match is None:
        raise InvalidConfiguration(f"a row's memory is {text!r}; allowed: a whole number with K, M, G or T, as 32G")
    return int(match[1]) << (10 * (1 + "KMGT".index(match[2])))


@dataclass(frozen=True)
class Row:
    """One row of a table: the values of its label columns, and its settings (dotted keys)."""

    labels: Labels
    settings: Mapping[str, Any] = field(default_factory=dict)
    points: Mapping[str, int] = field(default_factory=dict)
    """Curves to observe, each at about that many evenly spaced epochs: `{"observe.kendall_tau_every": 10}`."""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """By a column's metric, the metric that this row shows instead."""
    shaded: bool = False
    """Whether the row is highlighted, as the paper highlights its own methods."""
    source: str = "runs"
    """Where the values come from: one of `SOURCES`."""
    devices: float | None = None
    """The GPUs that a trial of the row needs: 0.5 for half of one, 2 for two, by as many ranks; None for what the
    command says. It precedes `--per-device`, has no effect without GPUs, and is not part of a trial's identity."""
    memory: str | None = None
    """The memory that a trial of the row needs, as "32G": `harness submit` requests it from SLURM. None for the value
    of the command. Not part of a trial's identity."""

    @property
    def retrains(self) -> bool:
        """Whether a trial of the row retrains what another one found."""
        return any(key.partition(".")[0] == "retrain" for key in self.settings)

    def __post_init__(self) -> None:
        if self.devices is not None and not (0 < self.devices <= 1 or self.devices == int(self.devices) > 1):
            raise InvalidConfiguration(
                f"a row's devices is {self.devices!r}; allowed: a part of one, as 0.5, a whole number, or None"
            )
        if self.memory is not None:
            memory_bytes(self.memory)
        if self.source not in SOURCES:
            raise InvalidConfiguration(f"a row's source is {self.source!r}; allowed: {', '.join(SOURCES)}")


@dataclass(frozen=True)
class Column:
    """One metric of a table: its heading, the result or cost it shows, and how."""

    label: str
    metric: str
    """A key of the result or the cost; dots separate nested keys: "stage_seconds.train"."""
    digits: int = 3
    best: str | None = "max"
    """Which value is bold within a group of rows: "max", "min", "nearest" to the reference, or None."""
    scale: float = 1.0
    """Factor on the stored number; the label names the unit."""
    each_dataset: bool = True
    """Whether the column appears for every data set, or once, for the first."""
    reference: str | float | None = None
    """The value that means no effect, or the metric that holds it; printed under the table."""
    remark: str = ""
    """What a reader must know about the metric; printed under the table."""

    def __post_init__(self) -> None:
        if self.best not in ("max", "min", "nearest", None):
            raise InvalidConfiguration(
                f"column {self.label!r}: best is {self.best!r}; allowed: max, min, nearest, None"
            )
        if self.best == "nearest" and self.reference is None:
            raise InvalidConfiguration(f"column {self.label!r}: best is 'nearest', which needs a reference")


@dataclass(frozen=True)
class Line:
    """A curve observed in the runs of the row with these labels: the mean over seeds, and their span."""

    label: str
    row: Labels
    metric: str


@dataclass(frozen=True)
class Curves:
    """A panel of curves over training, one for every data set."""

    title: str
    y: str
    lines: Sequence[Line]
    x: str = "Epoch"


@dataclass(frozen=True)
class Scatter:
    """A panel with one point per row, and error bars; a row that has only `y` is drawn as a horizontal line."""

    title: str
    x: Column
    y: Column
    log_x: bool = False


@dataclass(frozen=True)
class Bars:
    """A panel with one bar per row, grouped like the table: for a table that is easier to read as a picture."""

    title: str
    column: Column


@dataclass(frozen=True)
class Series:
    """Points of a line that was computed, not measured."""

    label: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Computed:
    """A panel of lines that follow from the configurations alone (learning rates, decay ratios)."""

    title: str
    x: str
    y: str
    series: Callable[[Sequence[Request]], Sequence[Series]]
    """Computes the lines from the study's requests."""
    log_x: bool = False


@dataclass(frozen=True)
class Drawings:
    """Panels with drawings of architectures, each under its name."""

    title: str
    architectures: Callable[[Sequence[Request]], Mapping[str, tuple[Space, Architecture]]]


@dataclass(frozen=True)
class SearchPlot:
    """A panel with every architecture that a search scored on all images, one for every data set.

    Predicted accuracy over a count, generation by colour, limits as lines. The search is that of the row with these
    labels, or that its retraining starts from.
    """

    title: str
    row: Labels
    count: str = "flops"
    """One of the space's counts."""
    x: str = "FLOPs"
    scale: float = 1.0
    """Factor on the count; `x` names the unit."""
    y: str = "Predicted accuracy (%)"
    seed: int = 0
    """The seed whose search is drawn."""


@dataclass(frozen=True)
class FoundDrawing:
    """A drawing of the architecture that the row with these labels shows, for every data set: what one seed found."""

    title: str
    row: Labels
    seed: int = 0


@dataclass(frozen=True)
class Comparison:
    """Two rows that a study compares, by their labels: is the first better than the second?

    In a study's `primary` contrasts, labels may fit several rows: their means are compared.
    """

    first: Labels
    second: Labels
    metric: str = ""
    """The metric of one of the study's columns; by default that of the first that says what is better."""
    margin: float | None = None
    """Differences below this count as none, in the column's unit: what lies within it is *equivalent*."""

    def __post_init__(self) -> None:
        if self.margin is not None and not self.margin > 0:
            raise InvalidConfiguration(f"a comparison's margin is {self.margin}; it must be above 0")


@dataclass(frozen=True)
class Pilot:
    """What a study was planned by: an effect to be found, and how much a row varies over seeds, in the main column's
    unit."""

    effect: float
    deviation: float
    source: str
    """The runs that say so, for the reader."""

    def __post_init__(self) -> None:
        if not (self.effect and self.deviation > 0):
            raise InvalidConfiguration(
                f"a pilot has the effect {self.effect} and the deviation {self.deviation}; "
                "the first must not be 0, and the second must be above 0"
            )


Panel = Curves | Scatter | Bars | Computed | Drawings | SearchPlot | FoundDrawing


@dataclass(frozen=True)
class Figure:
    """A figure of a study: one or several panels under one caption."""

    name: str
    """Name of the file, unique within the study."""
    title: str
    panels: Sequence[Panel]
    paper: str = ""
    """The paper's figure that it rebuilds."""
