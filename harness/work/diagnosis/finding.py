"""What a check of the installation and its surroundings finds: a plain value."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.documents import Word


class State(Word):
    """How a thing stands."""

    OK = "ok", "as it should be"
    NOTE = "note", "worth knowing; nothing fails because of it"
    PROBLEM = "problem", "something fails, or gives wrong results, because of it"


@dataclass(frozen=True)
class Finding:
    """What was found about a subject, and what to do about it."""

    subject: str
    state: State
    text: str
    advice: str = ""
    """What to do; every problem has one."""


def ok(subject: str, text: str) -> Finding:
    return Finding(subject, State.OK, text)


def note(subject: str, text: str, advice: str = "") -> Finding:
    return Finding(subject, State.NOTE, text, advice)


def problem(subject: str, text: str, advice: str) -> Finding:
    return Finding(subject, State.PROBLEM, text, advice)


Findings = Iterator[Finding]


def write_error(folder: Path) -> str | None:
    """Why no file can be written in the folder; None if one can. Tried for real: permissions alone do not tell."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(4096))
            file.flush()
    except OSError as error:
        return error.strerror or str(error)
    return None


def nearest(path: Path) -> Path:
    """The folder itself, or the nearest one above it that exists."""
    path = path.absolute()
    return next(one for one in (path, *path.parents) if one.exists())


def plural(count: int, thing: str) -> str:
    return f"{count} {thing}{'s' * (count != 1)}"
