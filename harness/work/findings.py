"""What `harness check` and `harness doctor` find: one vocabulary for both. Imports no torch."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from harness.documents import Word, one_line
from harness.errors import UserError, users_place


class State(Word):
    """The outcome of a check."""

    OK = "ok", "as it should be"
    NOTE = "note", "worth knowing, may be intended, or could not be checked"
    PROBLEM = "problem", "something fails, or gives wrong results, because of it"


@dataclass(frozen=True)
class Finding:
    """What was found about a subject, and what to do about it."""

    subject: str
    state: State
    text: str
    advice: str = ""


Findings = Iterator[Finding]


def ok(subject: str, text: str) -> Finding:
    return Finding(subject, State.OK, text)


def note(subject: str, text: str, advice: str = "") -> Finding:
    return Finding(subject, State.NOTE, text, advice)


def problem(subject: str, text: str, advice: str) -> Finding:
    return Finding(subject, State.PROBLEM, text, advice)


class Unfit(UserError):
    """A component does something else than its interface says. The message says what, and what to do."""


@dataclass
class Checks:
    """The findings about one component or file, in order."""

    subject: str
    origin: str
    """The file and line of errors that pass through no line of the user's."""
    gpu: bool = False
    """Whether trainings are also tried on the emulated GPU."""
    found: list[Finding] = field(default_factory=list)

    @property
    def problems(self) -> list[str]:
        return [one.text for one in self.found if one.state is State.PROBLEM]

    def ok(self, text: str) -> None:
        self.found.append(ok(self.subject, text))

    def note(self, text: str) -> None:
        self.found.append(note(self.subject, text))

    def problem(self, text: str) -> None:
        self.found.append(problem(self.subject, text, ""))

    @contextmanager
    def check(self, what: str) -> Iterator[None]:
        """One check: ok if the block ends, a problem with the reason if it raises. The error ends here."""
        try:
            yield
        except (Exception, SystemExit) as error:
            self.problem(f"{what}: {self.explained(error)}")
        else:
            self.ok(what)

    def explained(self, error: BaseException) -> str:
        """The error with the innermost line of the user's folder that it passed through."""
        text = one_line(error)
        place = users_place(traceback.format_exception(error), Path.cwd()) or self.origin
        here = f"{Path.cwd()}/"
        # Messages that know a better line begin with it.
        return text.replace(here, "") if text.startswith(here) else f"{place}: {text.replace(here, '')}"
