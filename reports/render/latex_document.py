"""What is written beside LaTeX tables: floats for figures, and `main.tex`, a document that shows the whole report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..figure_values import FigureValue, ForestLine, ForestPanel
from ..paper.order import place
from . import forests
from .drawing import plan
from .latex import HEAD, HEIGHT, caption, label, notes, room
from .latex_sheet import COLUMN, PAGE
from .latex_widths import running

if TYPE_CHECKING:
    from ..across import Across
    from ..report import Section

INCH = 72.27
"""Points."""
HIGHEST = 0.8 * HEIGHT * forests.WIDTH / PAGE
"""Inches that a forest plot may be high to fill the width of a page, above its caption and notes."""
SCALE = 0.88
"""Of figures: a panel then fills a column, and its letters are of the size of those of tables."""
PREAMBLE = r"""% Made by `harness report`; do not edit. Run pdflatex twice.
\documentclass[10pt]{article}
\usepackage[a4paper,text={6.875in,9.5in}]{geometry}
\usepackage{booktabs,multirow,amssymb,graphicx}
\usepackage[table]{xcolor}
\usepackage[font=small,labelfont=bf,skip=4pt]{caption}
\usepackage{float}
\usepackage[hidelinks,bookmarks=false]{hyperref}
\floatplacement{table}{H}
\floatplacement{figure}{H}
\renewenvironment{table*}{\begin{table}}{\end{table}}
\renewenvironment{figure*}{\begin{figure}}{\end{figure}}
\sloppy\emergencystretch=6em
\raggedbottom
"""
LETTERS = dict(zip("%#&$~^{}", ("percent", "hash", "and", "dollar", "tilde", "caret", "open", "close"), strict=True))
"""Letters that cannot stand in the name of a file inside a command, and the names of commands for them."""


def fitting(sections: Sequence[Section]) -> list[Section]:
    """The same sections with figures that fit on a page, two panels side by side."""
    return [
        replace(
            section, figures=tuple(replace(part, beside=2) for figure in section.figures for part in _fitting(figure))
        )
        for section in sections
    ]


def files(sections: Sequence[Section], across: Across | None = None) -> Iterator[tuple[str, str]]:
    """Names and contents of the files beside those of tables and grids."""
    for section in sections:
        if section.figures:
            yield f"{section.table.study}-figures.tex", render_figures(section.figures)
    if across and across.figure:
        yield f"{across.figure.study}-figures.tex", render_figures([across.figure])
    name = "main"
    while any(name == section.table.study for section in sections):
        name += "-document"
    yield f"{name}.tex", document(sections, across)


def render_figures(figures: Sequence[FigureValue]) -> str:
    """All figures as floats, which include the drawings' PDF files."""
    return HEAD + _letters([figure.file for figure in figures]) + "\n".join(_figure(figure) for figure in figures)


def document(sections: Sequence[Section], across: Across | None = None) -> str:
    """A document with a section for each study, in the order of the paper. Everything stands where it is input."""
    presets = ", ".join(dict.fromkeys(section.table.preset for section in sections))
    many = len(sections) > 1
    lines = [
        PREAMBLE + _letters([section.table.study for section in sections]) + "\\begin{document}",
        f"\\section*{{Report on {'studies' if many else 'a study'} under preset {running(presets)}}}",
        "Bold is the best of its block. A value with $^{\\approx}$ is not distinguishable from it: seed by seed, at",
        "5\\,\\% for all pairs of the block's rows together. Values with $^\\dagger$ are quoted.",
        "Notes under each table say what it rests on.",
        *(["\\tableofcontents", "\\clearpage"] if many else []),
    ]
    for section in sorted(sections, key=lambda section: place(section.findings.study)):
        lines += _section(section)
    if across:
        lines.append(f"\n\\section{{{running(across.grids[0].title)}}}")
        lines += [f"\\input{{{_file_name(f'{across.figure.study}-figures')}}}"] if across.figure else []
        lines += [f"\\input{{{_file_name(grid.name)}}}" for grid in across.grids]
    return "\n".join([*lines, "\\end{document}", ""])


def _section(section: Section) -> Iterator[str]:
    table, grids, figures = section.table, section.grids, section.figures
    listed = [grid.name for grid in (*section.references, *section.anytime)]
    shown = {
        "Table": [label("tab", name) for name in (table.study, *listed)],
        "Comparison": [label("tab", grid.name) for grid in grids],
        "Figure": [label("fig", figure.file) for figure in figures],
    }
    yield f"\n\\section{{{running(table.title)}}}"
    yield ". ".join(_references(kind, those) for kind, those in shown.items() if those) + ".\\par\\nopagebreak"
    yield f"\\input{{{_file_name(table.study)}}}"
    if section.anytime:
        yield f"\\input{{{_file_name(f'{table.study}-target')}}}"
    if section.references:
        yield f"\\input{{{_file_name(f'{table.study}-references')}}}"
    if figures:
        yield f"\\input{{{_file_name(f'{table.study}-figures')}}}"
    if grids:
        yield f"\\input{{{_file_name(f'{table.study}-compared')}}}"


def _references(kind: str, those: Sequence[str]) -> str:
    return f"{kind}{'s' * (len(those) > 1)}~" + ", ".join(f"\\ref{{{one}}}" for one in those)


def _figure(figure: FigureValue) -> str:
    across, high = (SCALE * INCH * inches for inches in plan(figure).size)
    wide = across > COLUMN + 1
    # What is wider or higher than a page is made smaller: a drawing cannot be broken.
    lines = [figure.scale, *figure.notes]
    points = across * min(1, (PAGE if wide else COLUMN) / across, room(figure.title, lines, wide) / high)
    environment = "figure*" if wide else "figure"
    said = [
        f"\\begin{{{environment}}}",
        "  \\centering\\sloppy",
        f"  \\includegraphics[width=\\harnesswidth{{{points:.0f}pt}}]{{{_file_name(figure.file)}.pdf}}",
        caption(figure.title),
        f"  \\label{{{label('fig', figure.file)}}}",
        *notes(lines, wide),
        f"\\end{{{environment}}}",
    ]
    return "\n".join(said) + "\n"


def _fitting(figure: FigureValue) -> Iterator[FigureValue]:
    """A forest plot that is higher than a page, as several."""
    panels = [part for panel in figure.panels if isinstance(panel, ForestPanel) for part in _cut(panel)]
    if len(panels) <= 1:
        yield figure
        return
    found: list[list[ForestPanel]] = [[]]
    for panel in panels:
        if found[-1] and sum(map(forests.height, [*found[-1], panel])) > HIGHEST:
            found.append([])
        found[-1].append(panel)
    for number, those in enumerate(found, 1):
        shown = replace(figure, panels=tuple(those))
        later = replace(shown, name=f"{figure.name}-{number}", title=f"{figure.title} (continued)")
        yield later if number > 1 else shown


def _cut(panel: ForestPanel) -> Iterator[ForestPanel]:
    """A panel in pieces that fit on a page."""
    lines: list[ForestLine] = []
    for line in panel.lines:
        if lines and forests.height(replace(panel, lines=(*lines, line))) > HIGHEST:
            yield replace(panel, lines=tuple(lines))
            lines = []
        lines.append(line)
    yield replace(panel, lines=tuple(lines))


def _file_name(name: str) -> str:
    """A file's name inside a command; see `_letters`."""
    if not any(letter in name for letter in LETTERS):
        return name
    return "".join(f"\\harness{LETTERS[one]} " if one in LETTERS else "\\space " if one == " " else one for one in name)


def _letters(names: Sequence[str]) -> str:
    """Commands for the letters of names of files that mean something to LaTeX; usually none."""
    used = [letter for letter in LETTERS if any(letter in name for name in names)]
    return "".join(
        f"\\begingroup\\lccode`\\?={ord(one)} \\lowercase{{\\endgroup\\def\\harness{LETTERS[one]}{{?}}}}\n"
        for one in used
    )
