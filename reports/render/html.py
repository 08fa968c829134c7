"""A report as one self-contained HTML page: sortable tables, figures, and the runs behind every value.

Nothing is loaded from elsewhere: style, script, figures and the runs' records are all inside. The same report
gives the same bytes. The page's templates are in `page/`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..figure_values import FigureValue
from ..grid import Grid
from ..provenance import describe
from ..values import Table, TableRow, Value, ValueColumn, label_text
from .drawing import draw

if TYPE_CHECKING:
    import jinja2

    from harness.stores.store import Store

    from ..report import Section

SUFFIX = "html"
FOLDER = Path(__file__).with_name("page")
MISSING = "—"
LONG = 32
"""Columns of a grid with more characters than this are broken into lines."""


def page(sections: Sequence[Section], store: Store, files: bool = False) -> str:
    """The whole page. `files` says that every figure is also stored next to it, as SVG and PDF."""
    places: list[dict[str, Any]] = []
    shown = [
        {
            "name": section.table.study,
            "missing": len(section.missing),
            "table": _table(section.table, places),
            "figures": [_figure(figure, places, files) for figure in section.figures],
            "grids": [_grid(grid) for grid in section.grids],
        }
        for section in sections
    ]
    runs = {one.run.id: one.run for section in sections for one in section.findings.found if one.run}
    mentioned = {run_id for place in places for *_, run_id in place["measured"]}
    data = {"places": places, **describe((run for run in runs.values() if run.id in mentioned), store)}
    template = _environment().get_template("page.html.j2")
    presets = dict.fromkeys(section.table.preset for section in sections)
    return template.render(sections=shown, preset=", ".join(presets), data=_json(data))


def render_tables(tables: Sequence[Table]) -> str:
    """The tables alone, as a part of a page."""
    return "\n".join(_part("table", _table(table, [])) for table in tables)


def render_grids(grids: Sequence[Grid]) -> str:
    """The grids alone, as a part of a page."""
    return "\n".join(_part("grid", _grid(grid)) for grid in grids)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )


def _part(macro: str, shown: dict[str, Any]) -> str:
    parts: Any = _environment().get_template("parts.html.j2").module
    return str(getattr(parts, macro)(shown))


def _table(table: Table, places: list[dict[str, Any]]) -> dict[str, Any]:
    """A table as the template expects it; adds its places to those of the page."""
    above = []
    if table.several:
        for (dataset, once), columns in groupby(table.columns, lambda column: (column.dataset, column.once)):
            above.append({"text": "" if once else dataset, "width": len(list(columns))})
    return {
        "name": table.study,
        "title": table.title,
        "scale": table.scale,
        "above": above,
        "labels": [{"text": text, "words": table.has_text(place)} for place, text in enumerate(table.labels)],
        "columns": [column.label for column in table.columns],
        "blocks": [
            [_row(table, row, row is not block[0] and table.spanned(block), places) for row in block]
            for block in table.blocks
        ],
        "notes": table.notes,
    }


def _row(table: Table, row: TableRow, again: bool, places: list[dict[str, Any]]) -> dict[str, Any]:
    name = ", ".join(
        f"{heading}: {label_text(label)}"
        for heading, label in zip(table.labels, row.labels, strict=True)
        if label not in (None, "")
    )
    return {
        "shaded": row.shaded,
        "source": row.source,
        "labels": [
            {"text": label_text(label), "again": again and place == table.group, "words": table.has_text(place)}
            for place, label in enumerate(row.labels)
        ],
        "values": [
            _value(table, name, column, value, places) for column, value in zip(table.columns, row.values, strict=True)
        ],
    }


def _value(table: Table, row: str, column: ValueColumn, value: Value, places: list[dict[str, Any]]) -> dict[str, Any]:
    shown = {
        "mean": value.mean or MISSING,
        "deviation": value.deviation,
        "mark": value.mark,
        "count": value.count,
        "best": value.best,
        "sort": value.mean,
        "place": None,
    }
    if value.measurements:
        shown["place"] = len(places)
        where = f"{column.label}, {column.dataset}"
        measured = [[one.seed, one.value, one.state, one.run_id] for one in value.measurements]
        places.append({"title": f"{table.title}", "where": where, "row": row, "measured": measured})
    return shown


def _figure(figure: FigureValue, places: list[dict[str, Any]], files: bool) -> dict[str, Any]:
    place = None
    if figure.runs:
        place = len(places)
        measured = [[None, None, "done", run_id] for run_id in figure.runs]
        places.append({"title": figure.title, "where": "all runs behind the figure", "row": "", "measured": measured})
    return {
        "name": figure.file,
        "title": figure.title,
        "scale": figure.scale,
        "svg": _inline(draw(figure, "svg").decode(), figure),
        "notes": figure.notes,
        "runs": len(figure.runs),
        "place": place,
        "files": files,
    }


def _grid(grid: Grid) -> dict[str, Any]:
    """A grid as the template expects it. A first entry that is repeated in the next row is shown once.

    Columns of details become a list in the second cell, which the reader opens.
    """
    whole, grid = grid, grid.shown
    kinds = [
        "number" if numeric else "words long" if max([0, *(len(row[place]) for row in grid.rows)]) > LONG else "words"
        for place, numeric in enumerate(grid.numeric)
    ]
    firsts = [None, *(row[0] for row in grid.rows)]
    return {
        "name": grid.name,
        "title": grid.title,
        "scale": grid.scale,
        "headings": list(zip(grid.headings, kinds, strict=True)),
        "rows": [
            {
                "cells": list(zip(row, kinds, strict=True)),
                "again": row[0] == before,
                "details": list(zip(whole.headings, full, strict=True))[len(row) :],
            }
            for before, row, full in zip(firsts, grid.rows, whole.rows, strict=False)
        ],
        "notes": grid.notes,
    }


def _inline(svg: str, figure: FigureValue) -> Any:
    """An SVG file as an element of the page: its ids must not clash with those of other figures."""
    from markupsafe import Markup, escape

    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'\bid="', f'id="{figure.file}-', svg)
    svg = re.sub(r'href="#', f'href="#{figure.file}-', svg)
    svg = re.sub(r"url\(#", f"url(#{figure.file}-", svg)
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{escape(figure.title)}"', 1))


def _json(document: Any) -> Any:
    """JSON for a script element, escaped so that it cannot end the element."""
    from markupsafe import Markup

    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))
