"""Checks the metrics that a study names when the study is loaded, not when its table stays empty. Imports no torch.

A column may show a number of the result or the cost (`harness.stores.schema`), a curve that a row observes (its last
value), or what a component adds. A line of a figure shows a curve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harness.components.discovery import why_missing
from harness.components.registries import REGISTRIES
from harness.errors import InvalidConfiguration, UnknownName
from harness.stores import shapes
from harness.stores.schema import CURVES
from harness.study.configuration import Observe
from harness.study.expansion import dotted
from harness.study.layout import Bars, Column, Curves, Line, Row, Scatter
from harness.study.reader import hints
from harness.study.study import Study

ADDING = ("observations", "metrics")
"""Registries whose components bring curves and metrics of their own, under their names."""


def check_metrics(study: Study) -> None:
    """Raise `InvalidConfiguration` for a metric, or a curve to observe, that no run of the study can have."""
    try:
        _check(study)
    except UnknownName as error:
        raise InvalidConfiguration(f"study {study.name}: {error}") from error


def _check(study: Study) -> None:
    asked = {setting for row in study.rows for setting in _asked(row)}
    for row in study.rows:
        _check_points(row)
    columns = [*study.columns, *_drawn(study)]
    for row in study.rows:
        for instead in row.metrics:
            if instead not in {column.metric for column in columns}:
                raise UnknownName.among("column's metric", instead, {column.metric for column in columns})
    for column in columns:
        rows = [row for row in study.rows if row.source == "runs"]
        for name in {row.metrics.get(column.metric, column.metric) for row in rows}:
            _require(name, f"column {column.label!r}", asked, shapes.numbers())
        if isinstance(column.reference, str):
            _require(column.reference, f"the reference of column {column.label!r}", asked, shapes.numbers())
    for line in _lines(study):
        _require(line.metric, f"line {line.label!r}", asked, ())


def _require(name: str, where: str, asked: set[str], numbers: Iterable[str]) -> None:
    """Raise unless runs of the study have the metric."""
    section, dot, _ = name.partition(".")
    if name in numbers or (dot and numbers and section in shapes.open_sections()):
        return
    curve = shapes.curve_of(name)
    if curve is not None and curve.setting in asked:
        return
    if curve is not None:
        raise UnknownName(f"{where}: no row observes {name!r}; set {curve.setting} in a row's settings or points")
    if any(name == own or name.startswith(f"{own}_") for own in _added()):
        return
    known = {*numbers, *(f"{one}.…" for one in shapes.open_sections() if numbers), *(one.name for one in CURVES)}
    unknown = UnknownName.among("metric", name, known | set(_added())).because(why_missing(name))
    raise UnknownName(f"{where}: {unknown}")


def _added() -> list[str]:
    """The names of the components that bring curves or metrics. Asked last: it loads all component files."""
    return [name for word in ADDING if word in REGISTRIES for name in REGISTRIES[word].names()]


def _asked(row: Row) -> Iterator[str]:
    """The settings of observations that a row switches on."""
    yield from row.points
    yield from (key for key, value in dotted(row.settings).items() if key.startswith("observe.") and value)


def _check_points(row: Row) -> None:
    every = [f"observe.{name}" for name, kind in hints(Observe).items() if kind is int]
    for key in row.points:
        if key not in every:
            raise UnknownName(f"points of row {tuple(row.labels.values())}: {UnknownName.among('curve', key, every)}")


def _drawn(study: Study) -> Iterator[Column]:
    """The columns of the study's figures."""
    for panel in (panel for figure in study.figures for panel in figure.panels):
        if isinstance(panel, Scatter):
            yield from (panel.x, panel.y)
        elif isinstance(panel, Bars):
            yield panel.column


def _lines(study: Study) -> Iterator[Line]:
    for panel in (panel for figure in study.figures for panel in figure.panels):
        if isinstance(panel, Curves):
            yield from panel.lines
