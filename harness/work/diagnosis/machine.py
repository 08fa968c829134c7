"""Checks of the machine: cores, variables of threads, temporary folder, disk space, encoding of the output."""

from __future__ import annotations

import codecs
import os
import sys
import tempfile
from pathlib import Path

from harness.data.places import CACHE, cache_folder
from harness.documents import amount
from harness.stores.directory.store import DirectoryStore
from harness.stores.places import VARIABLE
from harness.stores.stored import Status, StoredRun
from harness.work.diagnosis.finding import Findings, nearest, note, ok, plural, problem, write_error

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""The limit of a container, as quota and period."""

LEAST = 32 << 20
"""Bytes that a run needs where none is stored to tell."""
SCARCE = 1 << 30
"""Free bytes below which a note says so."""
MEASURED = 20
"""How many of the newest runs are measured."""


def check_cores() -> Findings:
    """The cores that this process may use, and the variables that set threads."""
    cores = os.cpu_count() or 1
    allowed = min(cores, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores, _quota() or cores)
    wrong = [name for name in THREADS if not os.environ.get(name, "1").isdecimal()]
    for name in wrong:
        text = f"{name} is {os.environ[name]!r}, not a number of threads"
        yield problem("cores", text, f"unset {name}; `run --threads` sets the threads of a trial")
    given = ", ".join(f"{name}={os.environ[name]}" for name in THREADS if name in os.environ and name not in wrong)
    if allowed < cores:
        text = f"{cores} cores, of which this process may use {allowed}"
        yield note("cores", text, f"`run --jobs {allowed}` starts no more trials than that")
    else:
        yield ok("cores", plural(cores, "core") + (f"; {given}" if given else ""))


def check_output() -> Findings:
    """Whether what is printed can hold τ, ± and ✓."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    if codecs.lookup(encoding).name == "utf-8":
        yield ok("output", "UTF-8")
    else:
        yield problem("output", f"the output is {encoding}, which has no tau and no check mark", "export PYTHONUTF8=1")


def check_temporary() -> Findings:
    """The folder of temporary files, and the folder of decoded images if one was named."""
    given = next((name for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)), None)
    error = None if given is None else write_error(Path(os.environ[given]))
    if given is not None and error is not None:
        text = f"no file can be written in {os.environ[given]}, which {given} names: {error}"
        yield problem("temporary", text, f"make the folder, free space in it, or set {given} to another")
    try:
        folder = Path(tempfile.gettempdir())
    except OSError as none:
        yield problem("temporary", f"there is no folder for temporary files: {none}", "set TMPDIR to a folder")
        return
    if error is None and (error := write_error(folder)) is not None:
        yield problem("temporary", f"no file can be written in {folder}: {error}", "set TMPDIR to another folder")
    elif error is None:
        yield from _space("temporary", folder, LEAST, "", f"free space in {folder}, or set TMPDIR to another folder")
    if os.environ.get(CACHE) and (error := write_error(nearest(cache_folder()))) is not None:
        text = f"decoded images cannot be written to {cache_folder()}: {error}"
        yield problem("cache", text, f"set {CACHE} to another folder")


def check_disk(directory: Path) -> Findings:
    """The free space of the store's disk, against what a run needs."""
    place = nearest(directory)
    if not place.is_dir():
        return  # said by the check of the store
    need = LEAST
    if directory.is_dir():
        store = DirectoryStore(directory)
        # A run is written once, and its checkpoint beside it twice: the old one stays until the new one is whole.
        need = max([LEAST, *(3 * size for size in _sizes(store))])
    told = f"; a run may need {amount(need)}"
    yield from _space("disk", place, need, told, f"free space, or set {VARIABLE} to a folder on another disk")


def _space(subject: str, folder: Path, need: int, told: str, advice: str) -> Findings:
    state = os.statvfs(folder)
    free = state.f_bavail * state.f_frsize
    text = f"{amount(free)} free in {folder}{told}"
    if free < need:
        yield problem(subject, text, advice)
    elif state.f_files and not state.f_favail:
        yield problem(subject, f"{folder} can hold no more files (inodes)", advice)
    elif free < max(SCARCE, 10 * need):
        yield note(subject, text, advice)
    else:
        yield ok(subject, text)


def _sizes(store: DirectoryStore) -> list[int]:
    """The sizes of the newest runs."""

    def stopped(run: StoredRun) -> str:
        return run.stop_time or ""

    done = sorted((run for run in store.runs() if run.status is Status.DONE), key=stopped)
    return [sum(store.files(run).values()) for run in done[-MEASURED:]]


def _quota() -> int | None:
    """How many cores a container may use; None without a limit."""
    try:
        quota, period = QUOTA.read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):  # "max" stands for no limit
        return None
