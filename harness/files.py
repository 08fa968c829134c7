"""Atomic file writes: a temporary file beside the target is written, synced to disk and renamed. Names of files."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import threading
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from harness.documents import without_nan
from harness.errors import InvalidConfiguration
from harness.owner import start_ticks

DAY = 86400.0

LONGEST_NAME = 100
"""Characters of the name of a study or a component: file systems allow 255 bytes with all that is added to it."""

_UNFINISHED = re.compile(r"\..+\.(?P<process>\d+)\.\d+")
"""The name of a file while `write` is writing it."""


def write_json(path: Path, document: Any) -> None:
    """Write the document; numbers that are not finite become null."""
    text = json.dumps(without_nan(document), indent=1, ensure_ascii=False, allow_nan=False)
    write(path, lambda file: file.write(text.encode() + b"\n"))


def write(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write a file atomically; `fill` gets the open file. Readers see the old file or the new one, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with temporary.open("wb") as file:
            fill(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def check_name(kind: str, name: str) -> None:
    """Raise `InvalidConfiguration` for a name that could lead a file elsewhere, or hide what is printed."""
    wrong = not name.strip(". ") or name != name.strip() or len(name) > LONGEST_NAME
    if wrong or any(letter in "/\\" or unicodedata.category(letter) in ("Cc", "Cf", "Cs") for letter in name):
        raise InvalidConfiguration(
            f"{kind} {name[:LONGEST_NAME]!r} is not a name: files are named after it. Allowed are up to {LONGEST_NAME} "
            "letters, digits and signs, without /, \\ and control characters, and not dots alone"
        )


def open_regular(path: Path) -> IO[bytes]:
    """Open a file to read. A pipe or a device in its place raises `OSError`, and is not waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return os.fdopen(descriptor, "rb")


def read_regular(path: Path) -> bytes:
    """The content of a file, which must be a regular one: see `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def is_unfinished(path: Path) -> bool:
    """Whether the name is the name of a file that is being written."""
    return bool(_UNFINISHED.fullmatch(path.name))


def living_writer(path: Path) -> int | None:
    """PID of the process that is writing this unfinished file; None if no live process on this machine is.

    After a day without a write, the PID is assumed to belong to another process. Raises FileNotFoundError.
    """
    changed = path.stat().st_mtime
    match = _UNFINISHED.fullmatch(path.name)
    if match is None or start_ticks(int(match["process"])) is None or time.time() - changed >= DAY:
        return None
    return int(match["process"])


def make_durable(folder: Path) -> None:
    """Sync the folder, so that files moved into it survive a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    with open_regular(path) as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
