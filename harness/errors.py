"""Every error that is meant for a reader, as one small hierarchy.

A message says what was wrong, where, what is allowed and what to do; the command line prints it
without a traceback. This module imports nothing of the harness, so that anything may raise from it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class HarnessError(Exception):
    """Something went wrong that the harness understands. The command line exits 1."""


class UserError(HarnessError):
    """The request cannot be carried out as it stands; the reader can put it right. Exit 2."""


class UnknownName(UserError):
    """A name that nothing is registered under."""

    @classmethod
    def among(cls, kind: str, name: str, known: Iterable[str]) -> UnknownName:
        """No `kind` is called `name`: suggest the nearest of the `known` names, and list them all."""
        import difflib

        known = sorted(known)
        lowered = {other.lower(): other for other in known}
        near = difflib.get_close_matches(name.lower(), lowered, n=1)
        suggestion = f"; did you mean {lowered[near[0]]!r}?" if near else "."
        return cls(f"no {kind} is named {name!r}{suggestion} Known: {', '.join(known) or 'none'}")


class NameCollision(UserError):
    """Two things claim one name."""


class InvalidConfiguration(UserError):
    """A value, or a combination of values, that is not allowed."""


class BrokenComponent(UserError):
    """A component file that does not import."""

    @classmethod
    def during_import(
        cls, file: Path, error: BaseException, *, advice: str = "", within: Path | None = None
    ) -> BrokenComponent:
        """Importing `file` raised `error`: show the line, in that file or in a neighbour that it imports.

        Neighbours are the files below `within`, by default those of the file's own folder.
        """
        place, line = _where(within or file.parent, error) or (file, None)
        at = f"{place}:{line}" if line else f"{place}"
        through = "" if place == file else f" (imported by {file})"
        # SyntaxError repeats its file and line in str(); only its message is news.
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
        return cls(f"{at} does not import{through}: {reason}" + (f"\n{advice}" if advice else ""))


class DataError(UserError):
    """Data that is missing, damaged or not what it claims to be."""


class Unreachable(HarnessError):
    """The place where claims or runs are kept does not answer. It may later: nothing is wrong with the request.

    The message is one line and never holds credentials.
    """


class Diverged(HarnessError):
    """Training left the finite numbers. The trial has no result; the other trials go on."""

    def __init__(self, step: int, loss: float) -> None:
        # Both go to Exception, or the error could not cross a process boundary (pickle calls cls(*args)).
        super().__init__(step, loss)
        self.step = step
        self.loss = loss

    def __str__(self) -> str:
        return f"training diverged at step {self.step}: the loss is {self.loss}"


def _where(folder: Path, error: BaseException) -> tuple[Path, int] | None:
    """The innermost line below `folder` that `error` passed through."""
    import traceback

    places = [(Path(frame.f_code.co_filename), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((Path(error.filename), error.lineno or 1))
    inside = [(path, line) for path, line in places if path.is_relative_to(folder)]
    return inside[-1] if inside else None
