"""Trees of images: FOLDER/CLASS/*.jpg or *.png, decoded with Pillow. Independent of particular data sets.

Decoding a small image takes Pillow a fifth of a millisecond, nearly all of it in Python, so threads do
not help: many files are shared among processes, which write into one memory-mapped array.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from harness.data.splits import shuffled
from harness.environment import pool
from harness.errors import DataError

SUFFIXES = (".jpg", ".jpeg", ".png")
IN_ONE_PROCESS = 4000
"""Up to this many files, starting other processes takes longer than it saves."""
TOGETHER = 500
"""Files that a process decodes at once."""

_GRAY = ("1", "L", "LA")
_MODES = (*_GRAY, "P", "RGB", "RGBA", "CMYK", "YCbCr")  # others have more than eight bits


@dataclass(frozen=True)
class Tree:
    """The images of a folder, N×height×width×3 and shuffled, with labels by the classes' alphabetical order."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    gray: bool
    """Whether no image has colours; then all three channels are equal."""


def class_folders(folder: Path) -> list[Path]:
    """The classes, sorted by name. Raises `DataError` when there is none."""
    with reading(folder):
        found = sorted(entry for entry in folder.iterdir() if not entry.name.startswith(".") and entry.is_dir())
    if not found:
        raise DataError(f"{folder}: has no class folders; a tree of images is {folder.name}/CLASS/*.png")
    return found


def image_files(folder: Path) -> list[str]:
    """The names of a class's images, sorted. Raises `DataError` when there is none."""
    with reading(folder):
        names = sorted(n for n in os.listdir(folder) if n.lower().endswith(SUFFIXES) and not n.startswith("."))
    if not names:
        raise DataError(f"{folder}: holds no image ({', '.join(SUFFIXES)})")
    return names


def listing(*folders: Path) -> str:
    """The names, sizes and modification times of all images below these folders, as one hash."""
    digest = hashlib.sha256()
    for folder in folders:
        for place in class_folders(folder):
            for name in image_files(place):
                with reading(place / name):
                    state = (place / name).stat()
                line = f"{folder.name}/{place.name}/{name} {state.st_size} {state.st_mtime_ns}"
                digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def read_tree(folder: Path, scratch: Path, size: tuple[int, int] | None = None) -> Tree:
    """Decode all images below `folder`; they must be of one size, `size` if given.

    The array is mapped to a file in `scratch`. Raises `DataError` naming the first file that is wrong.
    """
    classes = class_folders(folder)
    files = [(f"{place.name}/{name}", label) for label, place in enumerate(classes) for name in image_files(place)]
    # In alphabetical order the first thousand images would all be of one class.
    files = [files[position] for position in shuffled([name for name, _ in files])]
    names, labels = [name for name, _ in files], np.array([label for _, label in files], np.int64)
    first, _ = decoded(folder / names[0])
    height, width = size or (first.shape[0], first.shape[1])
    out = scratch / f"{folder.name}.npy"
    images = np.lib.format.open_memmap(out, "w+", np.uint8, (len(names), height, width, 3))
    images.flush()
    parts = [(out, folder, names[start : start + TOGETHER], start) for start in range(0, len(names), TOGETHER)]
    coloured = 0
    with progress(f"decoding {folder}", len(names)) as advance, _processes(folder, len(names)) as filled:
        for done, more in filled(_fill, *zip(*parts, strict=True)):
            advance(done)
            coloured += more
    return Tree(images, labels, tuple(place.name for place in classes), gray=not coloured)


def _fill(out: Path, folder: Path, names: Sequence[str], start: int) -> tuple[int, int]:
    """Decode these files into the array in the file `out`: how many there are, and how many have colours."""
    images = np.lib.format.open_memmap(out, "r+")
    coloured = 0
    for position, name in enumerate(names, start):
        pixels, has_colours = decoded(folder / name)
        if pixels.shape != images.shape[1:]:
            (height, width), (wanted_height, wanted_width) = pixels.shape[:2], images.shape[1:3]
            raise DataError(
                f"{folder / name}: has {width}×{height} pixels, not {wanted_width}×{wanted_height}; "
                "all images of a data set must have the same size"
            )
        images[position] = pixels
        coloured += has_colours
    return len(names), coloured


def decoded(path: Path) -> tuple[npt.NDArray[np.uint8], bool]:
    """An image as height×width×3 bytes, and whether it has colours."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=("JPEG", "PNG")) as image:
            if image.mode not in _MODES:
                raise DataError(f"{path}: has the mode {image.mode!r}; images must have eight bits per channel")
            return np.asarray(image.convert("RGB")), image.mode not in _GRAY
    except UnidentifiedImageError:
        raise DataError(f"{path}: is neither a JPEG nor a PNG image") from None
    except DataError:
        raise
    except Exception as error:  # Pillow raises errors of many kinds on damaged bytes
        raise DataError(f"{path}: truncated or damaged ({error or type(error).__name__})") from error


@contextlib.contextmanager
def _processes(folder: Path, count: int) -> Iterator[Callable[..., Iterator[tuple[int, int]]]]:
    """A `map` in as many processes as decoding so many images is worth."""
    if count <= IN_ONE_PROCESS:
        yield map
        return
    with pool(min(8, cores())) as workers:
        try:
            yield workers.map
        except BrokenProcessPool:
            advice = "in a script, load data sets below `if __name__ == '__main__':`"
            raise DataError(f"{folder}: a process that was decoding its images died; {advice}") from None
        finally:
            workers.shutdown(cancel_futures=True)


@contextlib.contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.advance(task, done)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
