"""Atomic file writes: a temporary file beside the target is written, synced to disk and renamed. Names of files.

Errors of the operating system raised here name the file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import secrets
import stat
import time
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from harness.documents import without_nan
from harness.errors import InvalidConfiguration
from harness.owner import machine, runs_here

DAY = 86400.0

LONGEST_NAME = 100
"""Characters of the name of a study or a component: file systems allow 255 bytes with all that is added to it."""

SETTLED = 600.0
"""Seconds without a change after which an unfinished file of an unknown process counts as abandoned."""

_UNFINISHED = re.compile(r"\..+\.(?P<process>\d+)\.(?P<machine>[0-9a-f]{8})[0-9a-f]{8}")
"""The name of a file that is being written (`temporary`)."""


def write_json(path: Path, document: Any) -> None:
    """Write the document; numbers that are not finite become null."""
    text = json.dumps(without_nan(document), indent=1, ensure_ascii=False, allow_nan=False)
    write(path, lambda file: file.write(text.encode() + b"\n"))


def write(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write a file atomically; `fill` gets the open file. Readers see the old file or the new one, never a part."""
    fresh = temporary(path)
    try:
        with naming(path):
            raw = NamedFile(fresh, "w", path)
            try:
                with io.BufferedWriter(raw) as file:
                    fill(file)
                    file.flush()
                    os.fsync(file.fileno())
            except Exception as error:
                # `torch.save` replaces an error of the disk by another.
                if raw.failure in (None, error):
                    raise
                raise raw.failure from error
            fresh.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


class NamedFile(io.FileIO):
    """A file whose errors of writing name it, or the path that it will have."""

    def __init__(self, file: Path, mode: str, path: Path | None = None) -> None:
        super().__init__(file, mode)
        self._path = path or file
        self.failure: OSError | None = None
        """The first of these errors."""

    def write(self, data: Any, /) -> int:
        try:
            with naming(self._path):
                return super().write(data)
        except OSError as error:
            self.failure = self.failure or error
            raise


def temporary(path: Path) -> Path:
    """A new name beside the path, for a file that gets the path's name once it is complete.

    Process id and machine show whether its writer is alive. Containers that share a folder may have equal ones.
    """
    return path.with_name(f".{path.name}.{os.getpid()}.{machine()}{secrets.token_hex(4)}")


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to an error of the operating system that names no file, as those of writing and syncing do."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
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
    if match is None or not runs_here(int(match["process"])) or time.time() - changed >= DAY:
        return None
    return int(match["process"])


def is_abandoned(path: Path) -> bool:
    """Whether nobody writes this unfinished file or folder: its writer on this machine is dead, or it has settled.

    Raises FileNotFoundError.
    """
    match = _UNFINISHED.fullmatch(path.name)
    if match is not None and match["machine"] == machine():
        return living_writer(path) is None
    inside = [path, *path.rglob("*")] if path.is_dir() else [path]
    return time.time() - max(one.lstat().st_mtime for one in inside) >= SETTLED


def remove_abandoned(folder: Path) -> None:
    """Remove the files of a folder that killed processes left unfinished."""
    for path in folder.glob(".*"):
        with contextlib.suppress(OSError):  # finished just now, or not ours to remove
            if is_unfinished(path) and is_abandoned(path):
                path.unlink()


def make_durable(path: Path) -> None:
    """Sync a file, or a folder so that the files in it keep their names, to survive a power failure."""
    with naming(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make the folder and its parents where they are missing, so that they survive a power failure."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for one in reversed(missing):
        with contextlib.suppress(PermissionError):  # a folder that may be written, but not read, cannot be synced
            make_durable(one.parent)


def sha256(path: Path) -> str:
    with open_regular(path) as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
