"""System calls that fail: a small library (`failing_calls.c`), compiled here and preloaded into processes."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

OPERATIONS = ("fsync", "rename", "link", "open", "read", "write", "unlink")
"""`open` is opening a file to write, `read` opening one to read."""


class _Record(ctypes.Structure):
    """As `struct fault` in the C file."""

    _fields_ = [
        ("key", ctypes.c_char * 16),
        ("operation", ctypes.c_char * 8),
        ("nth", ctypes.c_int32),
        ("number", ctypes.c_int32),
        ("seen", ctypes.c_int32),
        ("failed", ctypes.c_int32),
        ("path", ctypes.c_char * 216),
    ]


@dataclass(frozen=True)
class Fault:
    """One call that fails: the nth of its operation on a path with a trial's key in it. None of them without `nth`."""

    key: str
    operation: str
    nth: int = -1
    number: int = 0


@dataclass(frozen=True)
class Seen:
    """What became of a fault."""

    calls: int
    path: str | None
    """Of the call that failed; None if none did."""


def library(folder: Path) -> Path:
    """The compiled library. Skips the test where there is no C compiler."""
    if (compiler := shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")) is None:
        pytest.skip("needs a C compiler (cc), which is not here")
    source, target = Path(__file__).with_suffix(".c"), folder / "failing_calls.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", target, source, "-ldl"], check=True)
    return target


class Faults:
    """Faults of the processes that are started with `variables`."""

    def __init__(self, library: Path, file: Path, faults: Sequence[Fault]) -> None:
        self._file, self._faults = file, faults
        self.variables = {"LD_PRELOAD": str(library), "FAILING_CALLS": str(file)}
        records = [_Record(one.key.encode(), one.operation.encode(), one.nth, one.number) for one in faults]
        file.write_bytes(b"".join(bytes(record) for record in records))

    def seen(self) -> dict[Fault, Seen]:
        records = (_Record * len(self._faults)).from_buffer_copy(self._file.read_bytes())
        return {
            fault: Seen(record.seen, record.path.decode(errors="replace") if record.failed else None)
            for fault, record in zip(self._faults, records, strict=True)
        }
