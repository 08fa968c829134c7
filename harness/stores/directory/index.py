"""A cache: the summaries of runs that ended, valid as long as no file in their directories changes.

`index/XX.json` holds those of the runs whose ids begin with XX. It is derived only from the run directories
beside it: it may be removed at any time, and the next reader of the store makes it again. An entry is valid
only while its signature matches the directory. A shard that is damaged, or was written by another version of
the reader, is ignored. Several processes may write the same shard: the last one wins.
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

from harness import documents, schema
from harness.components import code
from harness.files import read_regular, write
from harness.stores.directory import reading
from harness.stores.stored import Problem, own_ranking, without_curves

INDEX = "index"

VERSION = 2
"""Changes with the format of the shards."""

DEPTH = 2
"""Maximum depth of folders in a run directory; a link in there may lead anywhere."""


def summaries(store: Path, ids: Collection[str], problems: list[Problem]) -> list[dict[str, Any]]:
    """The summaries of these runs, sorted by id, as `reading.summarise` gives them; damage becomes `problems`.

    Summaries of runs that ended and have no problems are kept for the next call, if the store is writable.
    """
    found: dict[str, dict[str, Any]] = {}
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
                found[name] = entry["summary"]
                if entry["signature"] is not None:
                    kept[name] = entry
        if kept != known:
            written = _write(shard, {name: entry for name, entry in kept.items() if (store / name).is_dir()})
            # Entries that were read together share the texts of their keys, which takes less memory.
            found.update((name, entry["summary"]) for name, entry in written.items() if name in found)
    return list(found.values())


def signature(run: str | os.PathLike[str]) -> str | None:
    """Signature that changes whenever a file in the run directory changes; None if it cannot be computed."""
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
    """One line per file: name, size and times. Uses descriptors for speed: a large store has many files."""
    for name in os.listdir(folder):
        status = os.stat(name, dir_fd=folder)
        if not stat.S_ISDIR(status.st_mode):
            # A copy may keep the modification time, but never the change time of the inode.
            yield f"{name}/{status.st_size}/{status.st_mtime_ns}/{status.st_ctime_ns}"
        elif depth > 1:
            inner = os.open(name, os.O_RDONLY, dir_fd=folder)
            try:
                yield from [f"{name}/{line}" for line in _files(inner, depth - 1)]
            finally:
                os.close(inner)


def _entry(run: Path, now: str | None, problems: list[Problem]) -> dict[str, Any] | None:
    """Read and verify the run again. The entry has no signature if that must be done every time."""
    mine: list[Problem] = []
    try:
        summary = reading.summarise(run, mine)
    except reading.Damaged as error:
        problems.append(error.problem)
        return None
    problems += mine
    return {"signature": None if mine or summary["recorded"] == "open" else now, "summary": summary}


@functools.cache
def _version() -> str:
    """Version of the shard format and of the reader: another reader might give other summaries."""
    modules = (reading, schema, documents, code)
    text = b"".join(Path(str(module.__file__)).read_bytes() for module in modules)
    return f"{VERSION}-{hashlib.sha256(text).hexdigest()[:16]}"


def _frame(checksum: str) -> tuple[bytes, bytes]:
    """The bytes before and after the entries: a shard is one JSON object with the entries and their checksum."""
    return f'{{"version": "{_version()}", "checksum": "{checksum}", "runs": '.encode(), b"}\n"


def _read(shard: Path) -> dict[str, dict[str, Any]]:
    """Signature and summary by run id."""
    try:
        content = read_regular(shard)
    except OSError:
        return {}
    start, end = (len(part) for part in _frame("0" * 64))
    text = content[start:-end]
    before, behind = _frame(hashlib.sha256(text).hexdigest())
    if (content[:start], content[-end:]) != (before, behind):
        return {}
    try:
        return _entries(text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _entries(text: bytes) -> dict[str, dict[str, Any]]:
    """The entries of a shard's text."""
    entries: dict[str, dict[str, Any]] = json.loads(text)
    for entry in entries.values():
        summary, _ = entry["summary"], entry["signature"]
        if (own := own_ranking(summary)) is not None and summary["rankings"][own] is None:
            summary["rankings"][own] = without_curves(summary["result"])
    return entries


def _packed(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """The entry with null for the run's own ranking where that is the run's result: half of what is read."""
    summary = entry["summary"]
    own = own_ranking(summary)
    if own is None or summary["rankings"][own] != without_curves(summary["result"]):
        return entry
    return {**entry, "summary": {**summary, "rankings": {**summary["rankings"], own: None}}}


def _write(shard: Path, entries: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Write a shard; returns the entries as its next reader gets them."""
    text = json.dumps({name: _packed(entry) for name, entry in entries.items()}).encode()
    before, behind = _frame(hashlib.sha256(text).hexdigest())
    # A store that is not writable is read in full every time.
    with contextlib.suppress(OSError):
        shard.parent.mkdir(exist_ok=True)
        write(shard, lambda file: file.write(before + text + behind))
    return _entries(text)
