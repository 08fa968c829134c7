"""A report as one self-contained HTML page: sortable tables, figures, and the runs behind every value.

Nothing is loaded from elsewhere: style, script, figures and the runs' records are all inside. The same report
gives the same bytes. The page's templates are in `page/`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from harness.study.comparisons import main_column

from ..comparison import INTERVAL, KINDS, VERDICT
from ..every_study import every_study
from ..figure_values import BarPanel, FigureValue, LinePanel, PointPanel, SearchPanel
from ..forest import NAME as FOREST
from ..grid import Grid
from ..overview import facts, notable, tallies
from ..paper.order import heading, is_own, place, rebuilds_figures
from ..provenance import describe
from ..values import Table
from ..verdicts import VERDICTS
from . import latex
from .dots import dots
from .drawing import draw
from .html_table import ASCENDING, DESCENDING, PageTable, page_table, shown_table
from .intervals import intervals

if TYPE_CHECKING:
    import jinja2

    from harness.stores.store import Store

    from ..across import Across
    from ..report import Section

FOLDER = Path(__file__).with_name("page")
LONG = 32
"""Columns of a grid with more characters than this are broken into lines."""
NOTABLE = 6
"""How many comparisons the head of the page lists."""
ICONS = dict(zip(VERDICTS, "✓✗=?–", strict=True))
ALONE = (LinePanel, PointPanel, BarPanel, SearchPanel)
"""Panels that are drawn one by one, so that they wrap in a narrow window."""


def page(
    sections: Sequence[Section],
    store: Store,
    files: bool = False,
    figures: bool = True,
    across: Across | None = None,
) -> str:
    """The whole page, the user's studies first, then in the order of the paper.

    `files` says that every figure of a study's own is also stored next to it; `figures` adds those that all have.
    """
    ordered = sorted(sections, key=lambda section: (not is_own(section.findings.study), place(section.findings.study)))
    places: list[dict[str, Any]] = []
    tables = [page_table(section) for section in ordered]
    shown = [
        _section(section, table, places, files, every_study(section.findings, store) if figures else [])
        for section, table in zip(ordered, tables, strict=True)
    ]
    ranked = None
    if across:
        drawn = [_figure(across.figure, places, files)] if across.figure else []
        ranked = {"title": across.grids[0].title, "figures": drawn, "grids": [_grid(grid) for grid in across.grids]}
    runs = {one.run.id: one.run for section in ordered for one in section.findings.found if one.run}
    mentioned = {run_id for place in places for *_, run_id in place["measured"]}
    described = describe((run for run in runs.values() if run.id in mentioned), store)
    presets = dict.fromkeys(section.table.preset for section in ordered)
    found = notable(ordered)
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            parts=[(name, list(own)) for name, own in groupby(shown, lambda one: one["part"])],
            preset=", ".join(presets),
            across=ranked,
            facts=facts(ordered, store.name, described),
            tallies=tallies([one for section in ordered for one in section.judgements]),
            notable=found[:NOTABLE],
            more=len(found[NOTABLE:]),
            missing=sum(len(section.table.missing) for section in ordered),
            unlike=_unlike(tables),
            data=_json({"places": places, **described}),
        )
    )


def study_part(section: Section) -> tuple[str, list[dict[str, Any]]]:
    """A study's part of a page by itself, and what its values open: for each place the seeds, values and runs."""
    places: list[dict[str, Any]] = []
    shown = _section(section, page_table(section), places, files=False)
    return _part("section", shown), places


def render_tables(tables: Sequence[Table]) -> str:
    """The tables alone, as a part of a page."""
    return "\n".join(_part("table", shown_table(PageTable(table), [])) for table in tables)


def render_grids(grids: Sequence[Grid]) -> str:
    """The grids alone, as a part of a page."""
    return "\n".join(_part("grid", _grid(grid)) for grid in grids)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    made.globals["icons"] = ICONS
    return made


def _part(macro: str, shown: dict[str, Any]) -> str:
    parts: Any = _environment().get_template("parts.html.j2").module
    return str(getattr(parts, macro)(shown))


def _section(
    section: Section,
    table: PageTable,
    places: list[dict[str, Any]],
    files: bool,
    further: Sequence[FigureValue] = (),
) -> dict[str, Any]:
    """A study as the templates expect it; `further` are figures that have no files."""
    study = section.findings.study
    main = main_column(study)
    neutral = [value for (_, column), value in table.neutral.items() if _is_main(table, column, main)]
    shown = shown_table(table, places) | {"latex": _json(latex.render([section.table]))}
    own = [figure for figure in section.figures if figure.name != FOREST]
    return {
        "name": study.name,
        "part": heading(study),
        "missing": len(section.table.missing),
        "sentences": section.sentences,
        "table": shown,
        "dots": dots(table.table, main.metric, fmean(neutral) if neutral else None) if main else [],
        "figures": [
            *(_figure(figure, places, files) for figure in own),
            *(_figure(figure, places, files=False) for figure in further),
        ],
        "opened": (is_own(study) or rebuilds_figures(study)) and any(figure.runs for figure in own),
        "forests": [figure.file for figure in section.figures if figure.name == FOREST and files],
        "references": [_grid(grid) for grid in section.references],
        "anytime": [_grid(grid) for grid in section.anytime],
        "grids": _verdicts(section),
        "tallies": tallies(section.judgements),
    }


def _is_main(table: PageTable, place: int, main: Any) -> bool:
    return main is not None and table.table.columns[place].metric == main.metric


def _unlike(tables: Sequence[PageTable]) -> str:
    """Why values of the paper have no difference beside them; empty if all have, or there are none."""
    alike = {place in table.alike for table in tables for _, place in table.paper}
    if False not in alike:
        return ""
    rule = "The difference to a value of the paper is shown where data set and preset are the paper's"
    return f"{rule}." if True in alike else f"{rule}: nowhere in this report."


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
        "drawn": [
            _inline(draw(piece, "svg").decode(), figure, f"{figure.file}-{number}")
            for number, piece in enumerate(_pieces(figure))
        ],
        "notes": figure.notes,
        "runs": len(figure.runs),
        "place": place,
        "files": files,
    }


def _pieces(figure: FigureValue) -> list[FigureValue]:
    """The figure's panels one by one, if each can stand alone."""
    if all(isinstance(panel, ALONE) for panel in figure.panels):
        return [replace(figure, panels=(panel,)) for panel in figure.panels]
    return [figure]


def _verdicts(section: Section) -> list[dict[str, Any]]:
    """The grids of verdicts, with a drawing of each interval."""
    by_kind = [[one for one in section.judgements if one.compared.kind == kind] for kind in KINDS]
    own = [judgements for judgements in by_kind if judgements]
    return [_grid(grid, intervals(judgements)) for grid, judgements in zip(section.verdicts, own, strict=True)]


def _grid(grid: Grid, drawings: Sequence[dict[str, Any] | None] = ()) -> dict[str, Any]:
    """A grid as the template expects it. A first entry that is repeated in the next row is shown once.

    Columns of details become a list in the second cell, which the reader opens. `drawings` are those of intervals.
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
        "headings": [
            (text, kind, DESCENDING if kind == "number" else ASCENDING)
            for text, kind in zip(grid.headings, kinds, strict=True)
        ],
        "rows": [
            {
                "cells": [_entry(*entry, drawing) for entry in zip(grid.headings, row, kinds, strict=True)],
                "again": row[0] == before,
                "details": list(zip(whole.headings, full, strict=True))[len(row) :],
            }
            for before, row, full, drawing in zip(
                firsts, grid.rows, whole.rows, drawings or [None] * len(grid.rows), strict=False
            )
        ],
        "notes": grid.notes,
    }


def _entry(heading: str, text: str, kind: str, drawing: dict[str, Any] | None) -> dict[str, Any]:
    """A cell of a grid. A verdict is coloured, and sorts by what it is worth; an interval is drawn."""
    verdict = next((one for one in VERDICTS if heading == VERDICT and text.startswith(one)), "")
    rest = text[len(verdict) :]
    return {
        "text": rest,
        "verdict": verdict,
        "drawing": drawing if heading == INTERVAL else None,
        "kind": "verdicts" if verdict else kind,
        "sort": f"{VERDICTS.index(verdict)} {rest}" if verdict else text,
    }


def _inline(svg: str, figure: FigureValue, name: str) -> Any:
    """An SVG file as an element of the page: its ids must not clash with those of other figures."""
    from markupsafe import Markup, escape

    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{escape(figure.title)}"', 1))


def _json(document: Any) -> Any:
    """JSON for a script element, escaped so that it cannot end the element."""
    from markupsafe import Markup

    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))
