"""What `harness check` finds, one line per check, and how an error is told in the user's words. Imports no torch."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.documents import Word, one_line
from harness.errors import UserError, users_place


class Verdict(Word):
    """How a check ended."""

    OK = "ok", "as it should be"
    WRONG = "wrong", "must be corrected"
    NOTE = "note", "may be meant so, or could not be checked"


@dataclass(frozen=True)
class Finding:
    """One check and how it ended."""

    verdict: Verdict
    text: str


class Unfit(UserError):
    """A component does something else than its interface says. The message says what, and what to do."""


@dataclass
class Findings:
    """The checks of one component or file, in order."""

    about: str
    """What is checked, for readers."""
    origin: str
    """The file and line of errors that pass through no line of the user's."""
    gpu: bool = False
    """Whether trainings are also tried on the emulated GPU."""
    lines: list[Finding] = field(default_factory=list)

    @property
    def wrong(self) -> bool:
        return any(line.verdict is Verdict.WRONG for line in self.lines)

    def add(self, verdict: Verdict, text: str) -> None:
        self.lines.append(Finding(verdict, text))

    def ok(self, text: str) -> None:
        self.add(Verdict.OK, text)

    def note(self, text: str) -> None:
        self.add(Verdict.NOTE, text)

    @contextmanager
    def check(self, what: str) -> Iterator[None]:
        """One check: ok if the block ends, wrong with the reason if it raises. The error ends here."""
        try:
            yield
        except (Exception, SystemExit) as error:
            self.add(Verdict.WRONG, f"{what}: {self.explained(error)}")
        else:
            self.add(Verdict.OK, what)

    def explained(self, error: BaseException) -> str:
        """The error with the innermost line of the user's folder that it passed through."""
        text = one_line(error)
        place = users_place(traceback.format_exception(error), Path.cwd()) or self.origin
        here = f"{Path.cwd()}/"
        # Messages that know a better line begin with it.
        return text.replace(here, "") if text.startswith(here) else f"{place}: {text.replace(here, '')}"


def shown(file: Path) -> str:
    """A file as the user names it."""
    here = Path.cwd().resolve()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)
