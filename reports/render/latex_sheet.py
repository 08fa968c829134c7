"""Lays out headings and cells as LaTeX tabulars that fit a page, all at one font size. Knows no study.

Nothing is scaled. A sheet that is too wide breaks the lines of its text columns; what is still too wide is divided
into tabulars one below the other, which repeat the first columns. A sheet that is too long becomes several parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from .latex_widths import flowing, width, wrapped

COLUMN, PAGE = 236.0, 495.0
"""Points: width of a column and of a page of a two-column article."""
GAP = 6.0
"""Points between two columns: twice \\tabcolsep."""
LINE, RULE, SPACE = 9.6, 5.5, 2.5
"""Points: height of a line, of a rule with its space, and of the space between rows of several lines."""
SHORT, WORD, LEAST = 48.0, 64.0, 42.0
"""Points: headings up to this width are not broken, wider words are; text columns are not narrower, if possible."""


@dataclass(frozen=True)
class Cell:
    """An entry. Without `latex` it is plain text, whose lines may be broken."""

    text: str
    latex: str | None = None
    points: float | None = None
    """The width of `latex`."""
    before: str = ""
    """Commands before the text."""

    @property
    def width(self) -> float:
        return width(self.text) if self.points is None else self.points

    def lines(self, room: float) -> int:
        return len(wrapped(self.text, room)) if self.latex is None else 1

    def render(self, room: float) -> str:
        return self.before + (flowing(self.text, room) if self.latex is None else self.latex)


@dataclass(frozen=True)
class Heading:
    """The head of a column. Neighbours of equal `over` share that heading above theirs."""

    text: str
    kind: str
    """l, c or r."""
    flexible: bool
    """Whether lines of the column may be broken."""
    over: str = ""


Block = Sequence[Sequence[Cell]]
"""Rows that belong together."""


@dataclass(frozen=True)
class Sheet:
    """What is laid out."""

    headings: Sequence[Heading]
    blocks: Sequence[Block]
    ruled: Sequence[bool]
    """For each block, whether there is a rule above it. That of the first is not drawn."""
    repeated: int
    """How many of the first columns are shown in every tabular."""
    group: int | None = None
    """The column in which a block's equal entries are shown once."""


@dataclass(frozen=True)
class Tabular:
    """Columns of a sheet, with their widths, which fit beside each other."""

    sheet: Sheet
    places: tuple[int, ...]
    widths: dict[int, float]
    natural: dict[int, float]

    @property
    def width(self) -> float:
        return sum(self.widths[place] for place in self.places) + GAP * (len(self.places) - 1)

    @property
    def head(self) -> float:
        """Height of headings and rules."""
        two = any(self.sheet.headings[place].over for place in self.places)
        lines = max(len(self._lines(place)) for place in self.places)
        return LINE * (lines + two) + RULE * (3 + two)

    def heights(self, block: Block) -> list[float]:
        """Heights of the rows of a block."""
        group = self.sheet.group
        lines = [self._lines_beside_group(row) for row in block]
        if group is not None and not self.spans(block):
            for number, row in enumerate(block[:1] if _is_shared(block, group) else block):
                lines[number] = max(lines[number], row[group].lines(self.widths[group]))
        return [LINE * count for count in lines]

    def above(self, block: Block, ruled: bool) -> float:
        """Height of what stands between a block and the one before."""
        return RULE if ruled else SPACE if self.heights(block[:1])[0] > LINE else 0.0

    def render(self, blocks: Sequence[Block], ruled: Sequence[bool]) -> str:
        body: list[str] = []
        for block, rule in zip(blocks, ruled, strict=True):
            if body and (space := self.above(block, rule)):
                body.append("    \\midrule" if rule else f"    \\addlinespace[{space}pt]")
            body += [self._row(block, number) for number in range(len(block))]
        kinds = "".join(self._kind(place) for place in self.places)
        lines = [f"  \\begin{{tabular}}{{@{{}}{kinds}@{{}}}}", "    \\toprule", *self._header(), "    \\midrule"]
        return "\n".join([*lines, *body, "    \\bottomrule", "  \\end{tabular}"])

    def _is_broken(self, place: int) -> bool:
        return self.widths[place] < self.natural[place]

    def _kind(self, place: int) -> str:
        kind = self.sheet.headings[place].kind
        if not self._is_broken(place):
            return kind
        ragged = {"l": "raggedright", "c": "centering", "r": "raggedleft"}[kind]
        return f">{{\\{ragged}\\arraybackslash}}p{{{self.widths[place]:.1f}pt}}"

    def _lines(self, place: int) -> list[str]:
        return wrapped(self.sheet.headings[place].text, self.widths[place])

    def _header(self) -> list[str]:
        headings = self.sheet.headings
        own = _line([_stacked(self._lines(place), headings[place].kind) for place in self.places])
        if not any(headings[place].over for place in self.places):
            return [own]
        above: list[str] = []
        rules: list[str] = []
        start = 1
        for over, those in groupby(self.places, lambda place: headings[place].over):
            widths = [self.widths[place] for place in those]
            if over:
                lines = wrapped(over, sum(widths) + GAP * (len(widths) - 1))
                above.append(f"\\multicolumn{{{len(widths)}}}{{c}}{{{_stacked(lines, 'c')}}}")
                rules.append(f"\\cmidrule(lr){{{start}-{start + len(widths) - 1}}}")
            else:
                above += [""] * len(widths)
            start += len(widths)
        return [_line(above), f"    {' '.join(rules)}", own]

    def _row(self, block: Block, number: int) -> str:
        return _line([self._cell(block, number, place) for place in self.places])

    def spans(self, block: Block) -> bool:
        """Whether one entry in the group's column spans the rows of the block: more lines would reach beyond it."""
        group = self.sheet.group
        if group is None or not _is_shared(block, group):
            return False
        return block[0][group].lines(self.widths[group]) <= sum(map(self._lines_beside_group, block))

    def _lines_beside_group(self, row: Sequence[Cell]) -> int:
        others = [place for place in self.places if place != self.sheet.group]
        return max((row[place].lines(self.widths[place]) for place in others), default=1)

    def _cell(self, block: Block, number: int, place: int) -> str:
        cell, room = block[number][place], self.widths[place]
        if place != self.sheet.group or not _is_shared(block, place):
            return cell.render(room)
        if number:
            return ""
        if not self.spans(block):
            return cell.render(room)
        # Not coloured: a later row's colour would cover the text that spans the rows.
        text = replace(cell, before="").render(room)
        rows = f"{{{len(block)}}}"
        if cell.lines(room) > 1:  # LaTeX takes every row for one line
            rows = f"[t]{{{sum(map(self._lines_beside_group, block))}}}"
        return f"\\multirow{rows}{{{'=' if self._is_broken(place) else '*'}}}{{{text}}}"


@dataclass(frozen=True)
class Part:
    """What stands in one float: tabulars one below the other."""

    tabulars: tuple[str, ...]
    wide: bool


def lay_out(sheet: Sheet, room: float) -> list[Part]:
    """The sheet in parts that are at most `room` high, and of about equal length."""
    tabulars = _tabulars(sheet)
    wide = max(one.width for one in tabulars) > COLUMN
    room = max(LINE, room - sum(one.head for one in tabulars))
    heights = [
        [sum(row) for row in zip(*(one.heights(block) for one in tabulars), strict=True)] for block in sheet.blocks
    ]
    above = [sum(one.above(*block) for one in tabulars) for block in zip(sheet.blocks, sheet.ruled, strict=True)]
    total = sum(above) + sum(map(sum, heights))
    equal = total / max(1, -(-total // room))
    parts: list[dict[int, list[Sequence[Cell]]]] = [{}]
    used = 0.0
    for number, block in enumerate(sheet.blocks):
        whole = above[number] + sum(heights[number])
        # A block stays together, unless it is long.
        if parts[-1] and (used + min(whole, room / 2) > room or used + whole / 2 > equal):
            parts.append({})
            used = 0.0
        used += above[number]
        for row, height in zip(block, heights[number], strict=True):
            if parts[-1] and used + height > room:
                parts.append({})
                used = 0.0
            parts[-1].setdefault(number, []).append(row)
            used += height
    return [
        Part(tuple(one.render([*part.values()], [sheet.ruled[number] for number in part]) for one in tabulars), wide)
        for part in parts
    ]


def _tabulars(sheet: Sheet) -> list[Tabular]:
    """The columns as they fit on a page."""
    places = tuple(range(len(sheet.headings)))
    natural = {place: _natural(sheet, place) for place in places}
    widths = _shrunk(sheet, natural, places, PAGE)
    whole = Tabular(sheet, places, widths, natural)
    if whole.width <= PAGE + 0.1:
        return [_shortest(whole)]
    first, rest = places[: sheet.repeated], places[sheet.repeated :]
    widths |= _capped({place: natural[place] for place in first}, PAGE / 2 - GAP * len(first))
    room = PAGE - sum(widths[place] + GAP for place in first)
    found: list[list[int]] = [[]]
    for _, those in groupby(rest, lambda place: sheet.headings[place].over):
        own = list(those)
        together = sum(widths[place] + GAP for place in own)
        taken = sum(widths[place] + GAP for place in found[-1])
        if found[-1] and taken + min(together, room) > room:
            found.append([])
        for place in own:
            if found[-1] and sum(widths[one] + GAP for one in [*found[-1], place]) > room:
                found.append([])
            found[-1].append(place)
    return [Tabular(sheet, (*first, *own), widths, natural) for own in found]


def _shortest(whole: Tabular) -> Tabular:
    """The same with a narrower group's column, if that makes it shorter: entries that span rows have room below."""
    sheet, group = whole.sheet, whole.sheet.group
    if group is None or whole.widths[group] >= whole.natural[group]:
        return whole
    found = [whole]
    for share in (0.9, 0.8, 0.7, 0.6, 0.5):
        narrow = whole.natural | {group: share * whole.widths[group]}
        widths = _shrunk(sheet, narrow, whole.places, PAGE)
        found.append(replace(whole, widths=widths))
    return min(found, key=_length)


def _length(one: Tabular) -> tuple[int, float]:
    """For how many blocks the entry of the group is too long; and the height of all rows."""
    blocks, group = one.sheet.blocks, one.sheet.group
    beyond = sum(group is not None and _is_shared(block, group) and not one.spans(block) for block in blocks)
    return beyond, sum(sum(one.heights(block)) for block in blocks)


def _natural(sheet: Sheet, place: int) -> float:
    """The width of a column whose lines are not broken. Its heading is broken if it is wider than the cells."""
    cells = max((row[place].width for block in sheet.blocks for row in block), default=0.0)
    heading = sheet.headings[place].text
    longest = max((min(WORD, width(word)) for word in heading.split()), default=0.0)
    lines = wrapped(heading, max(cells, longest, min(SHORT, width(heading))))
    return max(cells, *map(width, lines)) + 0.1


def _shrunk(sheet: Sheet, natural: dict[int, float], places: Sequence[int], room: float) -> dict[int, float]:
    """Widths that fit into the room, as far as breaking lines of text columns allows."""
    flexible = {place: natural[place] for place in places if sheet.headings[place].flexible}
    rigid = sum(natural[place] for place in places if place not in flexible)
    left = room - rigid - GAP * (len(places) - 1)
    return natural | _capped(flexible, max(left, LEAST * len(flexible)))


def _capped(widths: dict[int, float], room: float) -> dict[int, float]:
    """The widest are narrowed, all to the same width, until the sum fits."""
    left = dict(widths)
    while sum(left.values()) > room + 0.01:
        most = max(left.values())
        widest = [place for place, one in left.items() if one > most - 0.001]
        others = [one for place, one in left.items() if place not in widest]
        cap = max([(room - sum(others)) / len(widest), *others])
        left |= dict.fromkeys(widest, cap)
        if not others or cap > max(others):
            break
    return left


def _stacked(lines: Sequence[str], kind: str) -> str:
    """Lines one below the other in a cell."""
    text = "\\\\".join(_after_a_line(flowing(line, PAGE)) for line in lines)
    return text if len(lines) == 1 else f"\\begin{{tabular}}[b]{{@{{}}{kind}@{{}}}}{text}\\end{{tabular}}"


def _after_a_line(text: str) -> str:
    """Text after the command that ends a line: it would take these for its argument."""
    return f"{{}}{text}" if text.startswith(("[", "*")) else text


def _is_shared(block: Block, place: int) -> bool:
    """Whether several rows have the same entry in a column."""
    return len(block) > 1 and len({row[place].text for row in block}) == 1


def _line(cells: Sequence[str]) -> str:
    return f"    {_after_a_line(' & '.join(cells)).lstrip()} \\\\"
