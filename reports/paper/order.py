"""The order of the paper: where the tables and figures that a study rebuilds stand in it. Knows no format."""

from __future__ import annotations

import re
from pathlib import Path

from harness.environment import PROJECT
from harness.study.catalogue import file_of
from harness.study.study import Study

OWN = "Your studies"
"""The heading of studies that are not the project's; they come first."""
MAIN, SUPPLEMENT, BEYOND = PARTS = ("The paper", "Its supplement", "Beyond the paper")
HEADINGS = (OWN, *PARTS)
"""Under which lists of studies group them, in this order."""
_PRINTED = {
    MAIN: "Figure 1, Figure 2, Figure 3, Figure 4, Table 1, Table 2, Table 3, Table 4, Table 5, Figure 5, Table 6",
    SUPPLEMENT: "Table A, Figure A, Table B, Table C, Figure B, Table D, Table E, Figure C, Table F, Table G, Table H, "
    "Figure D, Table I, Table J, Table K, Table L, Table M, Figure E, Figure F, Figure G",
}
"""What each part prints, in its order."""
_ORDER = [(part, name) for part, names in _PRINTED.items() for name in names.split(", ")]
_NAMED = re.compile(r"(Table|Figure)s? (\w+)")


def place(study: Study) -> tuple[int, str]:
    """The study's place in the paper, to sort by; studies beyond the paper come last, by name."""
    named = _named(study)
    return (_names().index(named) if named else len(_ORDER)), study.name


def heading(study: Study) -> str:
    """One of `HEADINGS`."""
    return OWN if is_own(study) else part(study)


def part(study: Study) -> str:
    """One of `PARTS`."""
    named = _named(study)
    return _ORDER[_names().index(named)][0] if named else BEYOND


def is_own(study: Study) -> bool:
    """Whether the study is the user's, not one of the project's."""
    file = file_of(study)
    return file is not None and is_own_file(file)


def is_own_file(file: Path) -> bool:
    """Whether a study file is the user's."""
    return not file.resolve().is_relative_to(PROJECT / "studies")


def rebuilds_figures(study: Study) -> bool:
    """Whether the study is there for figures of the paper, its supplement apart, and not for a table."""
    return part(study) == MAIN and _named(study).startswith("Figure")


def _named(study: Study) -> str:
    """The first table or figure of the paper that the study, or else one of its figures, rebuilds; empty if none."""
    for text in (study.paper, *(figure.paper for figure in study.figures)):
        if (found := _NAMED.match(text)) and (name := " ".join(found.groups())) in _names():
            return name
    return ""


def _names() -> list[str]:
    return [name for _, name in _ORDER]
