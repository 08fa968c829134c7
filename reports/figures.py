"""Builds a study's figures from stored runs, as plain values. Knows no drawing and no particular study.

Curves are means over the seeds, at the steps that all seeds have, with their span. As in a table, missing
values are listed and never averaged away.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.components.registries import SPACES
from harness.components.space import Architecture, Space
from harness.study import layout
from harness.study.layout import Labels
from harness.study.study import find_row

from .evidence import Evidence, Findings, curves
from .figure_values import (
    Bar,
    BarPanel,
    Curve,
    FigureValue,
    GraphPanel,
    LinePanel,
    Panel,
    Point,
    PointPanel,
    SearchPanel,
)
from .notes import scale, title
from .quoted import given_row
from .searches import search_panel
from .tables import asked, value_columns, value_of
from .values import Value, ValueColumn, row_name

if TYPE_CHECKING:
    from harness.stores.store import Store

SPREADS: dict[type, str] = {
    layout.Curves: "Lines are means over the seeds, bands span them.",
    layout.Scatter: "Mean ± sample standard deviation over the seeds.",
    layout.Bars: "Mean ± sample standard deviation over the seeds, which are points.",
}
"""The text on how each kind of panel shows several seeds; other kinds have no seeds."""
PLAIN = "baseline"
"""Name of the group member that has nothing added."""


def build(findings: Findings, store: Store | None = None) -> list[FigureValue]:
    """All figures of the study, without those of columns that are not computed here: the table's notes name these.

    Raises `InvalidConfiguration` if a figure names a row that does not exist. Every score of a search is read from the
    store; without one, these are missing.
    """
    figures = (one for one in findings.study.figures if all(asked(column, findings) for column in _columns(one)))
    return [_Making(findings, store).figure(figure) for figure in figures]


def _columns(figure: layout.Figure) -> list[layout.Column]:
    """The columns whose values the figure shows."""
    shown: list[layout.Column] = []
    for panel in figure.panels:
        if isinstance(panel, layout.Scatter):
            shown += [panel.x, panel.y]
        elif isinstance(panel, layout.Bars):
            shown.append(panel.column)
    return shown


def legend_name(labels: Labels) -> str:
    """The name of a row in legends: its text labels, then the names of what is added."""
    words = ", ".join(label for label in labels.values() if isinstance(label, str) and label not in ("", "–"))
    added = [name for name, label in labels.items() if label is True]
    return " + ".join([*([words] if words else []), *added])


@dataclass
class _Making:
    """A figure under construction. Collects the runs behind it and what is missing."""

    findings: Findings
    store: Store | None = None
    runs: dict[str, None] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def figure(self, figure: layout.Figure) -> FigureValue:
        makers: dict[type, Callable[[Any], list[Panel]]] = {
            layout.Curves: self.curves,
            layout.Scatter: self.scatter,
            layout.Bars: self.bars,
            layout.Computed: self.computed,
            layout.Drawings: self.drawings,
            layout.SearchPlot: self.search,
            layout.FoundDrawing: self.found,
        }
        panels = [made for panel in figure.panels for made in makers[type(panel)](panel)]
        spreads = dict.fromkeys(SPREADS[type(panel)] for panel in figure.panels if type(panel) in SPREADS)
        return FigureValue(
            study=self.findings.study.name,
            name=figure.name,
            title=title(figure.title, figure.paper),
            scale=scale(self.findings, " ".join(spreads)),
            panels=tuple(panels),
            notes=(*self.notes, *(f"Missing: {text}" for text in self.missing)),
            runs=tuple(self.runs),
            missing=tuple(self.missing),
        )

    def curves(self, panel: layout.Curves) -> list[Panel]:
        panels: list[Panel] = []
        for dataset in self.findings.preset.datasets:
            name = self.on(panel.title, dataset)
            found = [self.curve(name, line, dataset) for line in panel.lines]
            panels.append(LinePanel(name, panel.x, panel.y, tuple(one for one in found if one)))
        return panels

    def curve(self, panel: str, line: layout.Line, dataset: str) -> Curve | None:
        """The mean over seeds at the steps that all of them have; None if there are no such steps."""
        row = find_row(self.findings.study, line.row)
        asked = [one for one in self.findings.counted if (one.request.row, one.request.dataset) == (row, dataset)]
        if not asked:  # a condition or an override has left the row out
            return None
        seeds = {one.run.id: points for one in asked if one.run and (points := observed(one, line.metric))}
        self.runs |= dict.fromkeys(seeds)
        label = line.label
        if len(seeds) < len(asked):
            count = f"{len(seeds)} of {len(asked)} seed{'s' * (len(asked) != 1)}"
            self.missing[f"{panel}: {line.label} ({count} with {line.metric})"] = None
            label += f" ({count})"
        steps = sorted(set.intersection(*map(set, seeds.values()))) if seeds else []
        values = [[points[step] for points in seeds.values()] for step in steps]
        if not values:
            return None
        span = [tuple(limit(at) for at in values) if len(seeds) > 1 else () for limit in (min, max)]
        return Curve(label, tuple(steps), tuple(map(statistics.fmean, values)), *span)

    def scatter(self, panel: layout.Scatter) -> list[Panel]:
        across = value_columns([panel.x], self.findings.preset)
        panels: list[Panel] = []
        for y in value_columns([panel.y], self.findings.preset):
            x = next((one for one in across if one.dataset == y.dataset), across[0])
            points = [
                Point(legend_name(labels) + high.mark, _mean(wide), _mean(high), _deviation(wide), _deviation(high))
                for labels, (wide, high) in self.rows(x, y)
                # A horizontal line for another data set would only stretch the axis.
                if high.mean and not (high.quotation and high.quotation.elsewhere)
            ]
            panels.append(PointPanel(self.on(panel.title, y.dataset), x.label, y.label, tuple(points), panel.log_x))
        return panels

    def bars(self, panel: layout.Bars) -> list[Panel]:
        group = self.findings.study.group
        panels: list[Panel] = []
        for column in value_columns([panel.column], self.findings.preset):
            bars = []
            for labels, (value,) in self.rows(column):
                rest = {name: label for name, label in labels.items() if name != group}
                block = legend_name({group: labels[group]}) if group else legend_name(labels)
                member = (legend_name(rest) or PLAIN) if group else ""
                seeds = () if value.quotation else tuple(value.numbers)
                bars.append(Bar(block + value.mark, member, _mean(value), _deviation(value), seeds))
            panels.append(BarPanel(self.on(panel.title, column.dataset), group or "", column.label, tuple(bars)))
        return panels

    def computed(self, panel: layout.Computed) -> list[Panel]:
        series = [Curve(one.label, tuple(one.x), tuple(one.y)) for one in panel.series(self.findings.requests)]
        return [LinePanel(panel.title, panel.x, panel.y, tuple(series), panel.log_x)]

    def drawings(self, panel: layout.Drawings) -> list[Panel]:
        panels: list[Panel] = []
        for name, (space, architecture) in panel.architectures(self.findings.requests).items():
            panels += self.drawn(name, space, architecture)
        return panels

    def found(self, panel: layout.FoundDrawing) -> list[Panel]:
        """What a row's retraining, its search, or else its ranking has found."""
        row = find_row(self.findings.study, panel.row)
        panels: list[Panel] = []
        for dataset in self.findings.preset.datasets:
            wanted = (row, dataset, panel.seed)
            for one in self.findings.counted:
                if (one.request.row, one.request.dataset, one.request.seed) != wanted:
                    continue
                name, architecture = self.on(panel.title, dataset), best_found(one.metrics)
                if architecture is None or one.run is None:
                    self.missing[f"{name}: {one.reason or 'nothing was found'}"] = None
                    continue
                self.runs[one.run.id] = None
                panels += self.drawn(name, SPACES.get(one.request.trial.config.space)(), architecture)
        return panels

    def drawn(self, name: str, space: Space, architecture: Architecture) -> list[Panel]:
        """The drawings of the architecture, if its space has any; its text becomes a note."""
        panels = graphs(name, space, architecture)
        no_drawing = "" if panels else f" ({space.name} has no drawing)"
        self.notes.append(f"{name}: {space.format(architecture)}{no_drawing}")
        return panels

    def search(self, panel: layout.SearchPlot) -> list[Panel]:
        row = find_row(self.findings.study, panel.row)
        panels: list[Panel] = []
        for dataset in self.findings.preset.datasets:
            wanted = (row, dataset, panel.seed)
            asked = [one.request for one in self.findings.counted]
            same = [one for one in asked if (one.row, one.dataset, one.seed) == wanted]
            if not same:  # a condition, an override or fewer seeds have left it out
                continue
            name = self.on(panel.title, dataset)
            made = search_panel(panel, name, same[0], self.store)
            if isinstance(made, str):
                self.missing[f"{name}: {made}"] = None
                panels.append(SearchPanel(name, panel.x, panel.y, ()))
            else:
                run, drawn = made
                self.runs[run] = None
                panels.append(drawn)
        return panels

    def rows(self, *columns: ValueColumn) -> list[tuple[Labels, tuple[Value, ...]]]:
        """The study's rows with their values in these columns; adds missing values to `missing`."""
        study, found = self.findings.study, self.findings.counted
        rows = []
        for number, row in enumerate(study.rows):
            if row.source != "runs":
                lacking: list[str] = []
                values = given_row(study, number, columns, self.findings.requests, lacking).values
                self.missing |= dict.fromkeys(lacking)
            else:
                values = tuple(value_of(found, number, column, row.metrics) for column in columns)
                for column, value in zip(columns, values, strict=True):
                    self.runs |= dict.fromkeys(one.run_id for one in value.measurements if one.value is not None)
                    if value.count:
                        place = f"{row_name(row.labels)}, {column.dataset}: {column.label}"
                        self.missing[f"{place} ({value.count})"] = None
            if row.source == "runs" or any(value.mean for value in values):
                rows.append((row.labels, values))
        return rows

    def on(self, text: str, dataset: str) -> str:
        """A panel's title; names the data set if there are several."""
        if len(self.findings.preset.datasets) == 1:
            return text
        return f"{text} ({dataset})" if text else dataset


def observed(evidence: Evidence, metric: str) -> dict[float, float]:
    """The points of a run's curve that are numbers, by step; empty unless the run is done."""
    if evidence.run is None or evidence.state != "done":
        return {}
    known = curves(evidence.run, evidence.request.trial.ranking_key)
    return {step: float(value) for step, value in known.get(metric, ()) if value is not None}


def _mean(value: Value) -> float | None:
    if value.quotation:
        return float(value.quotation.mean)
    return statistics.fmean(value.numbers) if value.numbers else None


def _deviation(value: Value) -> float:
    if value.quotation:
        return float(value.quotation.deviation or 0)
    return statistics.stdev(value.numbers) if len(value.numbers) > 1 else 0.0


def best_found(metrics: Mapping[str, Any]) -> Architecture | None:
    """The first architecture that a search has found, or else the one that was retrained or ranked first."""
    found = metrics.get("found")
    first = found[0]["architecture"] if found else metrics.get("top1")
    return tuple(int(choice) for choice in first) if first else None


def graphs(name: str, space: Space, architecture: Architecture) -> list[Panel]:
    """The drawings of an architecture under its name; none if its space has none."""
    wiring = space.wiring(architecture)
    if isinstance(wiring, Mapping):
        return [GraphPanel(f"{name}, {part}".removeprefix(", "), drawing) for part, drawing in wiring.items()]
    return [] if wiring is None else [GraphPanel(name, wiring)]
