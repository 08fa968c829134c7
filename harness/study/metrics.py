"""Checks the metrics that a study names when the study is loaded, not when its table stays empty. Imports no torch.

A column may show a number of the result or the cost (`harness.schema`), a curve that a row observes (its last
value), a registered metric, or a curve of a registered observation. `supernet.` before a name means the trial that a
retraining starts from. A line of a figure shows a curve of its row.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harness.components.discovery import why_missing
from harness.components.registries import METRICS, OBSERVATIONS
from harness.errors import InvalidConfiguration, UnknownName
from harness.schema import PANEL
from harness.study.columns import few_numbers, number_names, open_sections
from harness.study.configuration import Observe, RunConfig
from harness.study.curves import curve_names, curve_of
from harness.study.expansion import dotted
from harness.study.layout import Bars, Column, Curves, Line, Row, Scatter
from harness.study.reader import hints
from harness.study.study import Study, find_row

OWN = {"rank.metrics": METRICS, "observe.own": OBSERVATIONS}
"""Settings that name registered metrics and observations."""

MISSPELT = 0.8
"""How similar an unknown name is to a known one to be taken for a misspelling of it."""


SUPERNET = "supernet"
"""In a row that retrains, metrics of what it starts from: `supernet.training_memory_bytes`."""


def check_metrics(study: Study) -> None:
    """Raise `InvalidConfiguration` for a metric, or a curve to observe, that no run of the study can have."""
    try:
        _check(study)
    except UnknownName as error:
        raise InvalidConfiguration(f"study {study.name}: {error}") from error


def check_asked(study: Study, configs: Iterable[RunConfig]) -> None:
    """Raise `InvalidConfiguration` for a column of a registered metric that none of the study's runs is asked for."""
    asked = {name for config in configs for name in config.rank.metrics}
    for column in (*study.columns, *_drawn(study)):
        for name in _shown(column, study):
            if name not in (*asked, *number_names()) and name in METRICS:
                raise InvalidConfiguration(
                    f"study {study.name}: column {column.label!r} shows the metric {name!r}, but no row asks for it; "
                    f'set "rank.metrics": ["{name}"] in a row\'s settings, or give it after `with`'
                )


def _check(study: Study) -> None:
    asked = {key: value for row in study.rows for key, value in _asked(row).items()}
    for row in study.rows:
        _check_row(row)
    columns = [*study.columns, *_drawn(study)]
    for row in study.rows:
        for instead in row.metrics:
            if instead not in {column.metric for column in columns}:
                raise UnknownName.among("column's metric", instead, {column.metric for column in columns})
    for column in columns:
        for name in _shown(column, study):
            _require(name, f"column {column.label!r}", asked, number_names())
        if isinstance(column.reference, str):
            _require(column.reference, f"the reference of column {column.label!r}", asked, number_names())
    for line in _lines(study):
        own = study.rows[find_row(study, line.row)]
        _require(line.metric, f"line {line.label!r}", _asked(own), (), f"row {tuple(own.labels.values())}")


def _require(name: str, where: str, asked: Mapping[str, Any], numbers: Iterable[str], row: str = "") -> None:
    """Raise unless runs of the study, or of the row that is named, have the metric."""
    name = name.removeprefix(f"{SUPERNET}.")
    section, dot, _ = name.partition(".")
    if name in numbers or (dot and numbers and section in open_sections()):
        return
    curve = curve_of(name)
    if curve is not None and curve.setting in asked:
        return
    if curve is not None:
        unseen = f"{row} does not observe {name!r}" if row else f"no row observes {name!r}"
        raise UnknownName(f"{where}: {unseen}; set {curve.setting} in {row or 'a row'}'s settings or points")
    shown = numbers if name.startswith(PANEL) else few_numbers() if numbers else ()
    known = {*shown, *(f"{one}.…" for one in open_sections() if numbers), *curve_names()}
    own = {*(METRICS.names() if numbers else ()), *OBSERVATIONS.names()}
    # An observation names its curves when it is made: by its own name as a rule, but that is its own affair.
    named = any(_plain(name) == one or _plain(name).startswith(f"{one}_") for one in map(_plain, OBSERVATIONS.names()))
    free = "observe.own" in asked and not difflib.get_close_matches(name, known | own, n=1, cutoff=MISSPELT)
    if not (name in own or named or free):
        unknown = UnknownName.among("metric", name, known | own).because(why_missing(name))
        raise UnknownName(f"{where}: {unknown}")


def _plain(name: str) -> str:
    return name.replace("-", "_")


def _shown(column: Column, study: Study) -> set[str]:
    """The metrics that the rows show in a column."""
    return {row.metrics.get(column.metric, column.metric) for row in study.rows if row.source == "runs"}


def _asked(row: Row) -> dict[str, Any]:
    """The settings of observations that a row switches on."""
    settings = {key: value for key, value in dotted(row.settings).items() if key.startswith("observe.") and value}
    return {**row.points, **settings}


def _check_row(row: Row) -> None:
    place = tuple(row.labels.values())
    every = [f"observe.{name}" for name in hints(Observe) if name.endswith("_every")]
    for key in row.points:
        if key not in every:
            raise UnknownName(f"points of row {place}: {UnknownName.among('curve', key, every)}")
    settings = dotted(row.settings)
    for key, registry in OWN.items():
        names = settings.get(key)
        for name in names if isinstance(names, list | tuple) else ():
            if name not in registry:
                raise UnknownName(f"{key} of row {place}: {UnknownName.among(registry.kind, name, registry.names())}")


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
