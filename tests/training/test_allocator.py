"""Freed memory is kept where the C library can, and everything goes on where it cannot."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from harness.training import allocator as memory

FAULTS = """
import resource, sys
from harness.training.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for _ in range(3):
    bytearray(16 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    bytearray(16 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked")
def test_a_large_block_is_used_again_without_fresh_pages() -> None:
    # bytearray asks for cleared memory: taken from the heap it is written, taken from the system it is new pages.
    faults = {
        how: int(subprocess.run([sys.executable, "-c", FAULTS, how], capture_output=True, text=True, check=True).stdout)
        for how in ("keep", "leave")
    }
    assert faults["keep"] * 10 < max(faults["leave"], 1) or faults["keep"] < 100


def test_another_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert not memory.keep_freed_memory()
    monkeypatch.undo()

    class Musl:
        """A library without glibc's functions."""

        def __init__(self, name: None) -> None: ...

    monkeypatch.setattr("ctypes.CDLL", Musl)
    assert not memory.keep_freed_memory()
