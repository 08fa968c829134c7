"""Small file systems, how to fill them, and how to cut their power. Mounting needs the right to do so."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MEGABYTES = 24
"""Size of the images of `make_image`."""


def make_image(image: Path) -> Path:
    """Make an empty ext4 file system, with a journal, in a file. Skips the test where none can be mounted."""
    if (missing := [name for name in ("mkfs.ext4", "mount", "umount") if shutil.which(name) is None]) != []:
        pytest.skip(f"needs {missing[0]}, which is not here")
    with image.open("wb") as file:
        file.truncate(MEGABYTES << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, capture_output=True)
    trial = image.with_name(f"{image.name}-mounted")
    trial.mkdir()
    tried = subprocess.run(["mount", "-o", "loop", str(image), str(trial)], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"needs the right to mount an ext4 image (root, loop devices): {tried.stderr.strip()}")
    subprocess.run(["umount", str(trial)], check=True)
    trial.rmdir()
    return image


@contextmanager
def loop_mounted(image: Path, place: Path) -> Iterator[Path]:
    """Within, the file system in that file is mounted there, after the replay of its journal."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(place)], check=True, capture_output=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def power_cut(image: Path) -> bytes:
    """What a mounted image holds at one moment, as after a power cut: nothing is synced or unmounted for it.

    Reading takes time in which the file system writes, so it is repeated until nothing changed meanwhile.
    """
    content = image.read_bytes()
    while (again := image.read_bytes()) != content:
        content = again
    return content


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
