"""The parts of a figure: panels of plain numbers, with the runs behind them. Knows no study and no drawing."""

from __future__ import annotations

from dataclasses import dataclass

from harness.components.space import Chain, Wiring

Numbers = tuple[float, ...]


@dataclass(frozen=True)
class Curve:
    """A line and the span of the seeds around it; the span is empty for a single seed."""

    label: str
    x: Numbers
    y: Numbers
    low: Numbers = ()
    high: Numbers = ()


@dataclass(frozen=True)
class Point:
    """A point with its deviations. Without x it is drawn as a horizontal line, without y not at all."""

    label: str
    x: float | None
    y: float | None
    x_deviation: float = 0.0
    y_deviation: float = 0.0


@dataclass(frozen=True)
class Bar:
    """A bar of a group, or an empty place without a value. Members of equal name look the same in every group."""

    group: str
    member: str
    value: float | None
    deviation: float = 0.0
    seeds: Numbers = ()
    """The values of the seeds, drawn as points."""


@dataclass(frozen=True)
class LinePanel:
    title: str
    x: str
    y: str
    curves: tuple[Curve, ...]
    log_x: bool = False


@dataclass(frozen=True)
class PointPanel:
    title: str
    x: str
    y: str
    points: tuple[Point, ...]
    log_x: bool = False


@dataclass(frozen=True)
class BarPanel:
    title: str
    x: str
    y: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class GraphPanel:
    """An architecture under its name."""

    title: str
    wiring: Wiring | Chain


@dataclass(frozen=True)
class ScoredPoint:
    """An architecture that a search scored."""

    architecture: str
    x: float
    y: float
    generation: int | None
    """From 0 on; None for a search without generations."""


@dataclass(frozen=True)
class SearchPanel:
    """Every architecture that a search scored, in order."""

    title: str
    x: str
    y: str
    points: tuple[ScoredPoint, ...]
    limits: Numbers = ()
    """Places on the x axis that no found architecture passes."""
    found: tuple[ScoredPoint, ...] = ()


@dataclass(frozen=True)
class ForestLine:
    """A comparison: its effect, its interval (None where it is unbounded), and the paper's effect."""

    label: str
    effect: float
    low: float | None
    high: float | None
    printed: float | None
    verdict: str


@dataclass(frozen=True)
class ForestPanel:
    """Comparisons in one unit, from top to bottom."""

    title: str
    x: str
    lines: tuple[ForestLine, ...]
    y: str = ""


@dataclass(frozen=True)
class RankPanel:
    """Rows by mean rank, the best first, and the first and last of each group that does not differ."""

    title: str
    x: str
    labels: tuple[str, ...]
    ranks: Numbers
    groups: tuple[tuple[int, int], ...]
    y: str = ""


Panel = LinePanel | PointPanel | BarPanel | GraphPanel | SearchPanel | ForestPanel | RankPanel


@dataclass(frozen=True)
class FigureValue:
    """A whole figure."""

    study: str
    name: str
    title: str
    scale: str
    """What every caption must say; see `values.Table.scale`."""
    panels: tuple[Panel, ...]
    notes: tuple[str, ...]
    runs: tuple[str, ...]
    """The ids of the runs behind the figure."""
    missing: tuple[str, ...] = ()
    """What the figure should show but cannot, one line each."""
    beside: int = 3
    """Maximum number of panels side by side."""

    @property
    def file(self) -> str:
        """Name of the figure's files, without suffix."""
        return f"{self.study}-{self.name}"

    @property
    def caption(self) -> str:
        return f"{self.title}. {self.scale}"
