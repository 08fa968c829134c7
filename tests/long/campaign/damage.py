"""Damage to files and documents: bits that flip, pieces that are cut, and values that nobody expects."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 5, 10**30, 1e308, float("nan"), float("inf"), "", "x", "\ud800", "\x00", "../../x",
    "9" * 5000, [], [[]], [5], ["x", 5], {}, {"a": 1}, {"": None},
)  # fmt: skip
"""Values to stand where something else belongs."""


def places_in(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a document, its own left out."""
    if isinstance(document, dict):
        inside: list[tuple[Any, Any]] = list(document.items())
    else:
        inside = list(enumerate(document)) if isinstance(document, list) else []
    for key, value in inside:
        yield (*path, key)
        yield from places_in(value, (*path, key))


def get(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with that value at the place."""
    if not path:
        return value
    changed = copy.deepcopy(document)
    get(changed, path[:-1])[path[-1]] = value
    return changed


def without(document: Any, path: tuple[Any, ...]) -> Any:
    changed = copy.deepcopy(document)
    del get(changed, path[:-1])[path[-1]]
    return changed


def spoilt(document: Any, rng: random.Random) -> tuple[str, Any]:
    """The document with one odd value, one other number, or without one key; and what was done."""
    path = rng.choice(list(places_in(document)) or [()])
    named = ".".join(map(str, path)) or "the whole"
    old: Any = get(document, path)
    value: Any
    if path and rng.random() < 0.2:
        return f"{named} left out", without(document, path)
    if isinstance(old, int | float) and not isinstance(old, bool) and rng.random() < 0.4:
        value = rng.choice([old + 1, -old, old * 1.5, old + 0.125, 0.99])
    elif isinstance(old, str) and old and rng.random() < 0.4:
        at = rng.randrange(len(old))
        value = old[:at] + chr(ord(old[at]) ^ 1 << rng.randrange(5)) + old[at + 1 :]
    else:
        value = rng.choice(ODD)
    return f"{named} = {repr(value)[:30]}", with_value(document, path, value)


def flip(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def flipped(path: Path, rng: random.Random) -> str:
    content = path.read_bytes()
    path.write_bytes(flip(content, rng) if content else b"x")
    return "a bit flipped"


def _cut(path: Path, rng: random.Random) -> str:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(max(1, len(content)))])
    return "cut"


def _zeroed(path: Path, rng: random.Random) -> str:
    path.write_bytes(bytes(path.stat().st_size))
    return "zeros"


def _garbage(path: Path, rng: random.Random) -> str:
    path.write_bytes(rng.randbytes(rng.randrange(1, 400)))
    return "garbage"


def _deleted(path: Path, rng: random.Random) -> str:
    path.unlink()
    return "deleted"


def _folder(path: Path, rng: random.Random) -> str:
    path.unlink()
    path.mkdir()
    return "a folder in its place"


def _loop(path: Path, rng: random.Random) -> str:
    path.unlink()
    path.symlink_to(path.name)
    return "a link to itself in its place"


def _pipe(path: Path, rng: random.Random) -> str:
    path.unlink()
    os.mkfifo(path)
    return "a pipe in its place"


def _odd(path: Path, rng: random.Random) -> str:
    """Other values in a file of JSON; another kind of file gets a flipped bit."""
    lines = path.read_bytes().splitlines()
    try:
        whole = json.loads(path.read_bytes())
        what, changed = spoilt(whole, rng)
        text = json.dumps(changed, indent=1)
    except ValueError:
        if path.suffix != ".jsonl" or not lines:
            return flipped(path, rng)
        at = rng.randrange(len(lines))
        what, changed = spoilt(json.loads(lines[at]), rng)
        lines[at] = json.dumps(changed).encode()
        text = "".join(line.decode() + "\n" for line in lines)
    path.write_text(text)
    return what


Way = Callable[[Path, random.Random], str]
WAYS: tuple[Way, ...] = (
    _odd,
    _odd,
    _odd,
    _odd,
    flipped,
    flipped,
    _cut,
    _zeroed,
    _garbage,
    _deleted,
    _folder,
    _loop,
    _pipe,
)


@contextmanager
def damaged(path: Path, rng: random.Random, ways: tuple[Way, ...] = WAYS) -> Iterator[str]:
    """Within, the file is damaged; gives what was done."""
    content = path.read_bytes()
    try:
        yield rng.choice(ways)(path, rng)
    finally:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.write_bytes(content)
