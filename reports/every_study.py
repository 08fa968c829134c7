"""Figures that every study has, whatever its file asks for: training loss by row, and predicted against true accuracy.

They show what the table's numbers come from. Knows no format.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import TYPE_CHECKING

from harness.errors import HarnessError

from .evidence import Evidence, Findings
from .figure_values import Curve, FigureValue, LinePanel, Panel, ScoredPoint, SearchPanel
from .figures import legend_name
from .notes import scale

if TYPE_CHECKING:
    from harness.stores.store import Store

LOSS = "train_loss"
MOST = 12
"""Rows whose predictions are drawn: each is a panel."""


def every_study(findings: Findings, store: Store) -> list[FigureValue]:
    """The figures of a study for which there are runs with such values."""
    done = [one for one in findings.counted if one.run is not None and one.state == "done"]
    losses = [panel for dataset in findings.preset.datasets if (panel := _losses(findings, done, dataset, store))]
    predicted = _predicted(findings, done, store)
    made = [
        _figure(
            findings, "training", "Training loss, mean over seeds", losses, "Shaded: the range of the seeds.", done
        ),
        _figure(
            findings, "predictions", "Predicted against true accuracy", predicted, "The first seed of each row.", done
        ),
    ]
    return [one for one in made if one.panels]


def _figure(
    findings: Findings, name: str, title: str, panels: Iterable[Panel], spread: str, done: list[Evidence]
) -> FigureValue:
    runs = tuple(one.run.id for one in done if one.run is not None)
    return FigureValue(findings.study.name, name, title, scale(findings, spread), tuple(panels), (), runs)


def _losses(findings: Findings, done: list[Evidence], dataset: str, store: Store) -> LinePanel | None:
    curves = []
    for number, row in enumerate(findings.study.rows):
        own = [one for one in done if (one.request.row, one.request.dataset) == (number, dataset)]
        seeds = [points for one in own if (points := _points(one, store))]
        steps = sorted(set.intersection(*map(set, seeds))) if seeds else []
        if not steps:
            continue
        values = [[points[step] for points in seeds] for step in steps]
        span = [tuple(limit(at) for at in values) if len(seeds) > 1 else () for limit in (min, max)]
        curves.append(Curve(legend_name(row.labels), tuple(steps), tuple(map(statistics.fmean, values)), *span))
    title = dataset if len(findings.preset.datasets) > 1 else ""
    return LinePanel(title, "epoch", "training loss", tuple(curves)) if curves else None


def _points(one: Evidence, store: Store) -> dict[int, float]:
    assert one.run is not None
    try:
        found = store.metrics(one.run).get(LOSS, ())
    except HarnessError:  # a damaged curve is a problem that the report names
        return {}
    return {point["step"]: point["value"] for point in found if point["value"] is not None}


def _predicted(findings: Findings, done: list[Evidence], store: Store) -> list[Panel]:
    from harness import results

    first = min((one.request.seed for one in done), default=0)
    panels: list[Panel] = []
    for one in (one for one in done if one.request.seed == first and one.run is not None):
        try:
            table = results.predictions([one.run.id], store) if one.run else None
        except HarnessError:
            continue
        if table is None or not len(table := table.dropna(subset=["true", "predicted"])):
            continue
        table = table[table["selected"].astype(bool)]
        places = zip(table["architecture"], table["true"], table["predicted"], strict=True)
        points = tuple(ScoredPoint(str(name), float(x), float(y), None) for name, x, y in places)
        title = legend_name(findings.study.rows[one.request.row].labels)
        title += f", {one.request.dataset}" if len(findings.preset.datasets) > 1 else ""
        if points and len(panels) < MOST:
            panels.append(SearchPanel(title, "true accuracy (%)", "predicted accuracy (%)", points))
    return panels
