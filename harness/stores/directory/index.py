"""What need not be read again: summaries of runs that ended, as long as no file of their directories changes.

`index/XX.json` holds those of the runs whose ids begin with XX. It is made from nothing but the run
directories beside it: it may be removed at any time, and whoever reads the store next makes it again.
An entry counts only while its signature is that of the directory; a shard that is damaged, or was written
by another version of the reader, is as good as not there. Several processes may write one: the last wins.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from harness.files import write
from harness.stores.directory import reading
from harness.stores.stored import Problem

INDEX = "index"

VERSION = 1
"""Changes when shards are written in another way."""

DEPTH = 2
"""How many folders deep the files of a run lie at most; a link in there may lead anywhere."""


def summaries(store: Path, ids: Collection[str], problems: list[Problem]) -> list[dict[str, Any]]:
    """The summaries of these runs, by id, as `reading.summarise` gives them; damage becomes `problems`.

    Those of runs that ended and have no problems are kept for the next call, if the store can be written to.
    """
    found: list[dict[str, Any]] = []
    for prefix, names in groupby(sorted(ids), key=lambda name: name[:2]):
        shard = store / INDEX / f"{prefix}.json"
        known = _read(shard)
        kept = dict(known)
        for name in names:
            now = signature(f"{store}/{name}")
            entry = kept.pop(name, None)
            if entry is None or entry["signature"] != now:
                entry = _entry(store / name, now, problems)
            if entry is not None:
                found.append(entry["summary"])
                if entry["signature"] is not None:
                    kept[name] = entry
        if kept != known:
            _write(shard, {name: entry for name, entry in kept.items() if (store / name).is_dir()})
    return found


def signature(run: str | os.PathLike[str]) -> str | None:
    """What is another as soon as a file of the run's directory is; None when that cannot be told."""
    try:
        folder = os.open(run, os.O_RDONLY)
        try:
            files = "\n".join(sorted(_files(folder, DEPTH)))
        finally:
            os.close(folder)
    except OSError:
        return None
    return hashlib.sha256(files.encode(errors="surrogateescape")).hexdigest()


def _files(folder: int, depth: int) -> Iterator[str]:
    """A line for each file: name, size and times. By descriptor, since all of a large store are looked at."""
    for name in os.listdir(folder):
        status = os.stat(name, dir_fd=folder)
        if not stat.S_ISDIR(status.st_mode):
            # A copy may keep the time of the contents, never that of the file's own record.
            yield f"{name}/{status.st_size}/{status.st_mtime_ns}/{status.st_ctime_ns}"
        elif depth > 1:
            inner = os.open(name, os.O_RDONLY, dir_fd=folder)
            try:
                yield from [f"{name}/{line}" for line in _files(inner, depth - 1)]
            finally:
                os.close(inner)


def _entry(run: Path, now: str | None, problems: list[Problem]) -> dict[str, Any] | None:
    """The run read and verified anew; without a signature if that must be done every time."""
    mine: list[Problem] = []
    try:
        summary = reading.summarise(run, mine)
    except reading.Damaged as error:
        problems.append(Problem(str(error.path), error.reason))
        return None
    problems += mine
    return {"signature": None if mine or summary["recorded"] == "open" else now, "summary": summary}


@functools.cache
def _version() -> str:
    """Of the shards' form, and of the reader: what another reader found may not be what this one would."""
    text = Path(reading.__file__).read_bytes()
    return f"{VERSION}-{hashlib.sha256(text).hexdigest()[:16]}"


def _frame(checksum: str) -> tuple[bytes, bytes]:
    """What stands before and behind the entries: a shard is one JSON object that carries their checksum."""
    return f'{{"version": "{_version()}", "checksum": "{checksum}", "runs": '.encode(), b"}\n"


def _read(shard: Path) -> dict[str, dict[str, Any]]:
    """Signature and summary by run id."""
    try:
        content = shard.read_bytes()
    except OSError:
        return {}
    start, end = (len(part) for part in _frame("0" * 64))
    text = content[start:-end]
    before, behind = _frame(hashlib.sha256(text).hexdigest())
    if (content[:start], content[-end:]) != (before, behind):
        return {}
    entries: dict[str, dict[str, Any]] = json.loads(text)
    return entries


def _write(shard: Path, entries: Mapping[str, Mapping[str, Any]]) -> None:
    text = json.dumps(entries).encode()
    before, behind = _frame(hashlib.sha256(text).hexdigest())
    # A store that cannot be written to is read in full every time.
    with contextlib.suppress(OSError):
        shard.parent.mkdir(exist_ok=True)
        write(shard, lambda file: file.write(before + text + behind))
