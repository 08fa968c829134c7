"""Reads the tables of a paper from its LaTeX source, as far as that of our paper needs it: a test's second opinion.

It shares nothing with the files that it is compared with. Cells are characters, each with whether it is
bold; what spans several rows or columns stands in each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Bold = list[tuple[str, bool]]
"""Characters, and whether each is bold."""

_RULES = re.compile(r"\\(?:toprule|bottomrule|midrule|hline)|\\cmidrule(?:\([lr]*\))?\{[^}]*\}|\\rowcolor\{[^}]*\}")
_LETTERS = {
    "pm": "±",
    "checkmark": "✓",
    "leq": "≤",
    "log": "log",
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "propto": "∝",
}
_SHOW = {"textit", "text", "mathcal", "makecell", "mathrm"}
_HIDE = {"cite", "vspace", "label"}


@dataclass(frozen=True)
class SourceTable:
    """A table of the source: its number or letter, heading rows and body rows of cells."""

    name: str
    label: str
    caption: str
    headings: list[list[Bold]]
    rows: list[list[Bold]]


def source_tables(source: str) -> list[SourceTable]:
    """All tables, named as LaTeX would number them."""
    source = re.sub(r"(?<!\\)%.*", "", source)
    lettered = source.find(r"\renewcommand{\thetable}{\Alph{table}}")
    found: list[SourceTable] = []
    before = 0
    for match in re.finditer(r"\\begin\{table(\*?)\}(.*?)\\end\{table\1\}", source, re.DOTALL):
        place, text = match.start(), match[2]
        if place < lettered:
            before += 1
        number = len(found) + 1
        name = str(number) if place < lettered else chr(ord("A") + number - before - 1)
        label = re.search(r"\\label\{(tab:[^}]*)\}", text)
        caption = re.search(r"\\caption(?:of\{table\})?(?=\{)", text)
        assert label and caption, text
        body = _tabular(text)
        top, _, bottom = body.partition(r"\midrule")
        # One grid for both: a heading may span the rule's two sides no more than a row may.
        found.append(SourceTable(name, label[1], plain(_group(text, caption.end())[0]), _cells(top), _cells(bottom)))
    return found


def plain(tex: str | Bold) -> str:
    """As text, with single spaces."""
    characters = spelled(tex) if isinstance(tex, str) else tex
    return " ".join("".join(character for character, _ in characters).split())


def spelled(tex: str) -> Bold:
    """The characters that are printed, and which are bold."""
    return list(_spell(tex, False))


def _spell(tex: str, bold: bool) -> Iterator[tuple[str, bool]]:
    place = 0
    while place < len(tex):
        character = tex[place]
        if character == "{":
            inner, place = _group(tex, place)
            yield from _spell(inner, bold)
        elif character in "$":
            place += 1
        elif character == "~":
            yield " ", bold
            place += 1
        elif character != "\\":
            yield character, bold
            place += 1
        elif not tex[place + 1].isalpha():  # \% \# \& print themselves, \\ breaks a line
            yield " " if tex[place + 1] == "\\" else tex[place + 1], bold
            place += 2
        else:
            command = re.compile(r"[A-Za-z]+").match(tex, place + 1)
            assert command
            place = command.end()
            option = re.compile(r"\s*\[[^\]]*\]").match(tex, place)
            if command[0] in ("shortstack", "makecell") and option:
                place = option.end()
            if command[0] in _LETTERS:
                for letter in _LETTERS[command[0]]:
                    yield letter, bold
            elif command[0] in ("textbf", "mathbf"):
                inner, place = _group(tex, place)
                yield from _spell(inner, True)
            elif command[0] in _HIDE:
                _, place = _group(tex, place)
            elif command[0] not in _SHOW | {"shortstack", "centering"}:
                raise AssertionError(f"a command that this reader does not know: \\{command[0]} in {tex!r}")


def _group(tex: str, place: int) -> tuple[str, int]:
    """What the braces at `place` hold, and the place after them."""
    start = tex.index("{", place)
    assert not tex[place:start].strip(), f"no group at {tex[place : place + 20]!r}"
    depth = 0
    for index in range(start, len(tex)):
        if tex[index] in "{}" and tex[index - 1] != "\\":
            depth += 1 if tex[index] == "{" else -1
        if depth == 0:
            return tex[start + 1 : index], index + 1
    raise AssertionError(f"braces do not close in {tex[start : start + 40]!r}")


def _tabular(text: str) -> str:
    """The outermost tabular's body; those inside, which break headings into lines, become groups."""
    start = text.index(r"\begin{tabular}")
    body = text[start : text.rindex(r"\end{tabular}")]
    _, after = _group(body, len(r"\begin{tabular}"))
    return re.sub(r"\\begin\{tabular\}\[c\]\{@\{\}c@\{\}\}(.*?)\\end\{tabular\}", r"{\1}", body[after:])


def _cells(tex: str) -> list[list[Bold]]:
    """The grid of cells, everything that spans several of them filled in."""
    grid: list[list[Bold]] = []
    spans: dict[tuple[int, int], Bold] = {}
    for number, line in enumerate(filter(str.strip, _split(_RULES.sub(" ", tex), "\\\\"))):
        row: list[Bold] = []
        for cell in _split(line, "&"):
            width, content = _spanning(cell, "multicolumn")
            height, content = _spanning(content, "multirow")
            text = spelled(content)
            for _ in range(width):
                column = len(row)
                for above in range(1, -height):
                    grid[number - above][column] = text
                for below in range(1, height):
                    spans[number + below, column] = text
                row.append(spans.get((number, column), text) if not plain(text) else text)
        # A row may end early where only cells that span into it are left.
        while (number, len(row)) in spans:
            row.append(spans[number, len(row)])
        grid.append(row)
    return grid


def _split(tex: str, separator: str) -> list[str]:
    """At separators outside of braces; a separator that is escaped is none."""
    parts, start, depth, place = [], 0, 0, 0
    while place < len(tex):
        if depth == 0 and tex.startswith(separator, place):
            parts.append(tex[start:place])
            place = start = place + len(separator)
            continue
        if tex[place] == "\\":
            place += 2
            continue
        depth += {"{": 1, "}": -1}.get(tex[place], 0)
        place += 1
    return [*parts, tex[start:]]


def _spanning(cell: str, command: str) -> tuple[int, str]:
    """How many cells it spans (upwards, if negative), and what it holds."""
    place = cell.find(f"\\{command}")
    if place < 0:
        return 1, cell
    arguments: list[str] = []
    place += len(command) + 1
    while len(arguments) < 3:
        option = re.compile(r"\[[^\]]*\]").match(cell, place)
        if option:
            place = option.end()
        argument, place = _group(cell, place)
        arguments.append(argument)
    return int(arguments[0]), arguments[2]


def texts(cells: Sequence[Bold]) -> list[str]:
    return [plain(cell) for cell in cells]
