"""All errors that are meant for the user, as one small hierarchy.

A message says what was wrong, where, what is allowed and what to do; the command line prints it
without a traceback. This module imports nothing from the harness, so every module can use it.
"""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterable
from pathlib import Path


class HarnessError(Exception):
    """Base class of the errors that the harness raises itself. The command line exits 1."""


class RanksLost(HarnessError):
    """A process of a data-parallel group has lost the others: one of them has failed, or was killed."""


class UserError(HarnessError):
    """The request cannot be carried out; the user can correct it. The command line exits 2."""


class UnknownName(UserError):
    """An unknown name."""

    @classmethod
    def among(cls, kind: str, name: str, known: Iterable[str]) -> UnknownName:
        """The error for a `kind` without that `name`: suggests the nearest of the `known` names, and lists a few."""
        known = sorted(known)
        near = " or ".join(map(repr, _near(name, known)))
        suggestion = f"; did you mean {near}?" if near else "."
        return cls(f"no {kind} is named {name!r}{suggestion} Known: {listed(name, known)}")

    def because(self, reasons: Iterable[str]) -> UnknownName:
        """The same error with reasons why the name may be missing, one per line."""
        return type(self)("\n".join([str(self), *reasons]))


MOST = 10
"""How many names a message lists: a longer list scrolls the message away."""


def listed(name: str, known: Iterable[str]) -> str:
    """The known names, or, of many, those nearest to `name` and how many more there are."""
    import difflib

    names = sorted(known)
    if len(names) <= MOST:
        return ", ".join(names) or "none"
    nearest = difflib.get_close_matches(name, names, n=MOST, cutoff=0)
    return f"{', '.join(sorted(nearest))} and {len(names) - MOST} more"


def did_you_mean(name: str, known: Iterable[str], strict: bool = False) -> str | None:
    """The nearest of the known names, in upper or lower case; None if none is near. `strict` asks for a likely slip."""
    return next(iter(_near(name, known, strict)), None)


def _near(name: str, known: Iterable[str], strict: bool = False) -> list[str]:
    """The nearest of the known names, or all that end in the word, as `kendall_tau` and `partial_tau` do in `tau`."""
    import difflib

    lowered = {other.lower(): other for other in known}
    ending = [other for other in lowered if other.endswith((f"_{name.lower()}", f".{name.lower()}"))]
    near = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.8 if strict else 0.6)
    if ending and name.lower() not in lowered:
        near = sorted(ending, key=len)[:3]
    return [lowered[one] for one in near]


class NameCollision(UserError):
    """Two things have the same name."""


class InvalidConfiguration(UserError):
    """A value, or a combination of values, that is not allowed."""


class ComponentWarning(UserWarning):
    """A file or folder of a user that is left out, with the reason. The command line prints it on stderr."""


class SourceWarning(UserWarning):
    """Results of different versions of a user's component are in one data frame."""


class BrokenComponent(UserError):
    """A component file that cannot be imported."""

    place: Path | None = None
    """The file whose line raised the error: the component's own, or a neighbour that it imports."""

    @classmethod
    def during_import(cls, file: Path, error: BaseException, *, within: Path | None = None) -> BrokenComponent:
        """The error for a `file` whose import raised `error`: names the line, there or in a neighbour it imports.

        Neighbours are the files below `within`, by default those of the file's own folder.
        """
        place, line = where(within or file.parent, error) or (file, None)
        at = f"{place}:{line}" if line else f"{place}"
        through = "" if place == file else f" (imported by {file})"
        # SyntaxError repeats its file and line in str(); only its message is new.
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
        broken = cls(f"{at} does not import{through}: {reason}")
        broken.place = place
        return broken


class DataError(UserError):
    """Data that is missing, damaged or not what it claims to be."""


class NotBuilt(DataError):
    """A table of ground truth that was not computed yet; the message names the command that does it."""


class DamagedImage(DataError):
    """One image of a streamed data set that cannot be read. It is left out, unless there are many."""


class Unreachable(HarnessError):
    """The store of claims or runs is unreachable. The request itself is valid: a retry may succeed.

    The message is one line and never holds credentials.
    """


class NotReadable(HarnessError):
    """What is stored may be intact, but the machine cannot read it now: see `is_machines_fault`."""


FAULTS = {
    getattr(errno, name)
    for name in ("EACCES", "EDQUOT", "EIO", "EMFILE", "ENFILE", "ENOMEM", "ENOSPC", "EROFS", "ESTALE")
}
"""Errors of the operating system that are the machine's fault: no space, a failing disk or network file system, no
permission, too many open files, no memory."""


def is_machines_fault(error: BaseException | None) -> bool:
    """Whether the machine caused the error, and not the trial or its files: another time, the same may succeed."""
    while error is not None:
        if isinstance(error, NotReadable) or (isinstance(error, OSError) and error.errno in FAULTS):
            return True
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return False


class Diverged(HarnessError):
    """The loss is no longer finite. The trial has no result; the other trials continue."""

    def __init__(self, step: int, loss: float) -> None:
        # Pass both to Exception, or the error cannot be pickled between processes (pickle calls cls(*args)).
        super().__init__(step, loss)
        self.step = step
        self.loss = loss

    def __str__(self) -> str:
        return f"training diverged at step {self.step}: the loss is {self.loss}"


def with_notes(error: BaseException) -> str:
    """The message of an error and its notes, one per line."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def where(folder: Path, error: BaseException) -> tuple[Path, int] | None:
    """The innermost line below `folder` that `error` passed through."""
    import traceback

    places = [(Path(frame.f_code.co_filename), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((Path(error.filename), error.lineno or 1))
    inside = [(path, line) for path, line in places if path.is_relative_to(folder)]
    return inside[-1] if inside else None


def users_place(trace: Iterable[str], folder: Path) -> str | None:
    """The innermost `file:line` of a printed traceback that is the user's: in the folder, and not installed there.

    The engine may be in the folder, too, as may an environment of installed packages.
    """
    found = None
    places = (Path(__file__).parent, Path(sys.prefix), Path(sys.base_prefix))
    installed = [place for place in places if place.is_relative_to(folder)]
    for text in trace:
        for name, line in re.findall(r'^ *File "(.+?)", line (\d+)', text, re.MULTILINE):
            file = Path(name)
            if file.is_relative_to(folder) and not any(map(file.is_relative_to, installed)):
                found = f"{file.relative_to(folder)}:{line}"
    return found


def require(holds: bool, message: str) -> None:
    """Raise `InvalidConfiguration` unless the condition holds."""
    if not holds:
        raise InvalidConfiguration(message)
