"""Small file systems of memory, and how to fill them. Mounting needs the right to do so."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def mounted(place: Path, options: str) -> Iterator[Path]:
    """Within, an empty file system of memory is mounted there."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True, capture_output=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextmanager
def filled(disk: Path, left: int) -> Iterator[None]:
    """Within, so many kilobytes are free on the disk."""
    ballast, block = disk / "ballast", b"x" * 1024
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(block)
        except OSError:
            pass
        file.truncate(max(0, file.tell() - left * 1024))
    try:
        yield
    finally:
        ballast.unlink()
