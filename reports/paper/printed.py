"""What the paper prints of a study: which of its rows, on which data sets. For `plan --printed` and `run --printed`."""

from __future__ import annotations

from functools import lru_cache

from harness.study.layout import Curves
from harness.study.study import Request, Study

from .numbers import beside, datasets, tables

Labels = frozenset[tuple[str, str | bool]]


def has_printed(study: Study) -> bool:
    """Whether the paper prints anything of the study."""
    return bool(_in_tables(study.name) or _drawn(study))


def is_printed(study: Study, request: Request) -> bool:
    """Whether a table of the paper prints the row on the request's data set, or a figure of the paper draws it.

    Figures are on the first data set. A data set that the paper does not have stands for the first that it has.
    """
    labels = frozenset(study.rows[request.row].labels.items())
    dataset = request.dataset if request.dataset in datasets() else beside(request.dataset, study.name)
    places = _in_tables(study.name)
    if (labels, dataset) in places or (labels, None) in places:
        return True
    return dataset == beside("", study.name) and labels in _drawn(study)


@lru_cache(maxsize=64)
def _in_tables(study: str) -> frozenset[tuple[Labels, str | None]]:
    """The rows that tables print, each with its data sets; None for a table that names none."""
    named = {
        (frozenset(row.labels.items()), column.dataset)
        for table in tables()
        if table.study == study
        for row in table.rows
        for column, value in zip(table.columns, row.values, strict=True)
        if value is not None
    }
    with_dataset = {labels for labels, dataset in named if dataset}
    # A cost that is printed once belongs to the data sets of the row's other numbers.
    return frozenset(place for place in named if place[1] or place[0] not in with_dataset)


def _drawn(study: Study) -> set[Labels]:
    """The rows that lines of the paper's figures show."""
    panels = [panel for figure in study.figures if figure.paper for panel in figure.panels]
    return {frozenset(line.row.items()) for panel in panels if isinstance(panel, Curves) for line in panel.lines}
