"""The user's own code of a run, from its copies of source files, compared with that of another run or of today."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from harness.components.code import code_of
from harness.components.own_code import is_ours
from harness.errors import DataError
from harness.stores.directory.run_directory import SOURCES
from harness.stores.store import Store
from harness.stores.stored import StoredRun
from harness.study.trial import Trial

NO_COPY = "the run has no copy of it, as runs of earlier versions have of what a component imports"


@dataclass(frozen=True)
class Difference:
    """What differs in one file."""

    file: str
    lines: tuple[str, ...]
    """A unified diff, without line ends."""
    verdict: str
    matters: bool
    """Whether it is more than comments, docstrings and formatting."""


def copies(store: Store, run: StoredRun) -> dict[str, bytes]:
    """The run's copies of the user's own files, by name. Raises `DataError` if one is damaged."""
    names = [name.removeprefix(f"{SOURCES}/") for name in store.files(run) if name.startswith(f"{SOURCES}/")]
    shipped = {name for name, file in Trial.from_json(run.trial).sources().items() if is_ours(file)}
    return {name: store.read(run, f"{SOURCES}/{name}") for name in names if name not in shipped}


def files_of_today(run: StoredRun) -> dict[str, bytes]:
    """The user's own files that the run's configuration would be run with today, by name."""
    sources = Trial.from_json(run.trial).sources()
    try:
        return {name: file.read_bytes() for name, file in sources.items() if not is_ours(file)}
    except OSError as error:
        raise DataError(f"{error.filename} cannot be read: {error.strerror or error}") from error


def compare(then: Mapping[str, bytes], now: Mapping[str, bytes]) -> list[Difference]:
    """The files that differ, by name."""
    pairs = ((name, then.get(name), now.get(name)) for name in sorted({*then, *now}))
    return [_difference(*pair) for pair in pairs if pair[1] != pair[2]]


def _difference(name: str, then: bytes | None, now: bytes | None) -> Difference:
    lines = tuple(_lines(name, then or b"", now or b"")) if then is not None else ()
    if then is None:
        return Difference(name, lines, NO_COPY, True)
    if now is None:
        return Difference(name, lines, "is no longer used", True)
    one, other = code_of(then), code_of(now)
    if one is not None and other is not None and one.digest == other.digest:
        return Difference(name, lines, "the code is the same: comments, docstrings or formatting differ", False)
    return Difference(name, lines, "the code differs", True)


def _lines(name: str, then: bytes, now: bytes) -> Iterator[str]:
    one, other = (text.decode(errors="replace").splitlines() for text in (then, now))
    yield from difflib.unified_diff(one, other, f"{name} then", f"{name} now", lineterm="")
