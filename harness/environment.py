"""The environment of a run: packages, the project's commit, Python, CPU, GPUs, host; and the versions that the project
requires. Imports no torch.

Environment variables and paths are left out: they may be private, or meaningful on one machine only.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distributions, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

PACKAGE = "nas-harness"

ENGINE = Path(__file__).resolve().parent
"""The package `harness`."""

SHIPPED = ENGINE / "_shipped"
"""In an installed wheel, the folders that are beside the engine in a checkout: methods, spaces, studies, reports."""

PROJECT = SHIPPED if SHIPPED.is_dir() else ENGINE.parent
"""Where these folders are."""


def pool(processes: int) -> ProcessPoolExecutor:
    """A pool of processes that start empty and end with this one, whatever ends it."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    return ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    import threading
    import warnings
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    from harness.errors import ComponentWarning

    warnings.simplefilter("ignore", ComponentWarning)  # the parent has shown these
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@lru_cache(maxsize=1)
def describe() -> dict[str, Any]:
    """The environment as plain JSON types.

    Computed once per process. A server that forks workers calls it before the first fork, so that the recorded
    commit is the commit of the imported code, even if the folder changes later.
    """
    # An installed package has no commit; the folder it is installed in may be inside another repository.
    commit, dirty = (None, None) if SHIPPED.is_dir() else git_state(PROJECT)
    installed = packages()
    return {
        "hostname": platform.node(),
        "os": [platform.system(), platform.platform()],
        "python": platform.python_version(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "gpus": gpu_names(),
        "packages": installed,
        "version": installed.get("nas-harness"),
        "commit": commit,
        "dirty": dirty,
        "constraints": constraints(),
    }


def constraints() -> str | None:
    """The SHA-256 of the list of versions that this copy of the project was tested with; None without that list."""
    try:
        return hashlib.sha256((PROJECT / "constraints.txt").read_bytes()).hexdigest()
    except OSError:
        return None


def packages() -> dict[str, str]:
    """The installed packages and their versions."""
    found = {}
    for distribution in distributions():
        name = distribution.metadata["Name"]
        if name and name not in found:  # the first on the path is the one that is imported
            found[name] = distribution.version
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def git_state(folder: Path) -> tuple[str | None, bool | None]:
    """The checked-out commit, and whether files differ from it (untracked Python files count).

    None if there is no repository, no commit yet, or no git.
    """
    status = _git(folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
    if status is None:
        return None, None
    lines = status.splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "(initial)")
    changed = any(not line.startswith("#") for line in lines)
    new = _git(folder, "ls-files", "--others", "--exclude-standard", "--", "*.py")
    return (None if commit == "(initial)" else commit), changed or bool(new)


def _git(folder: Path, *arguments: str) -> str | None:
    # Reading must not take the index lock: a commit may be running.
    command = ["git", "-C", str(folder), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout


DRIVER = Path("/proc/driver/nvidia/gpus")
"""Where the driver lists the NVIDIA GPUs."""

MANAGEMENT = "libnvidia-ml.so.1"
"""The driver's library that lists them where the list is missing: in WSL2 and some containers."""

NODES = Path("/dev")
"""Where a container without both has one file per GPU."""


def gpu_names() -> list[str]:
    """Models of the NVIDIA GPUs, without starting CUDA, which would break later forks."""
    return _listed() or _managed() or [f"NVIDIA GPU {node}" for node in sorted(NODES.glob("nvidia[0-9]*"))]


def _managed() -> list[str]:
    """The GPUs that the management library names."""
    try:
        library = ctypes.CDLL(MANAGEMENT)
        if library.nvmlInit_v2() != 0:
            return []
    except (OSError, AttributeError):
        return []
    try:
        count, handle, name = ctypes.c_uint(), ctypes.c_void_p(), ctypes.create_string_buffer(96)
        library.nvmlDeviceGetCount_v2(ctypes.byref(count))
        names = []
        for number in range(count.value):
            library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle))
            library.nvmlDeviceGetName(handle, name, len(name))
            names.append(name.value.decode(errors="replace"))
        return names
    finally:
        library.nvmlShutdown()


def _listed() -> list[str]:
    """The GPUs of the driver's list."""
    names = []
    for file in sorted(DRIVER.glob("*/information")):
        try:
            lines = file.read_text(errors="replace").splitlines()
        except OSError:
            continue
        names += [line.split(":", 1)[1].strip() for line in lines if line.startswith("Model:")]
    return names


def cpu_model() -> str:
    """The CPU's model name as reported by the system."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    wanted = ("model name", "cpu family", "model\t")
    found = {line.split(":")[0].strip(): line.split(":")[1].strip() for line in lines if line.startswith(wanted)}
    return " ".join(f"{value}" if key == "model name" else f"{key} {value}" for key, value in sorted(found.items()))


@dataclass(frozen=True)
class Bounds:
    """The versions that the project asks for."""

    python: str
    needed: Sequence[str]
    extras: dict[str, list[str]] = field(default_factory=dict)


def bounds() -> Bounds | None:
    """The bounds of `pyproject.toml` in a checkout, else those of the installed package; None if neither is there."""
    file = ENGINE.parent / "pyproject.toml"
    if not SHIPPED.is_dir() and file.is_file():
        project = tomllib.loads(file.read_text())["project"]
        return Bounds(project["requires-python"], project["dependencies"], project["optional-dependencies"])
    try:
        about = metadata(PACKAGE)
    except PackageNotFoundError:
        return None
    from packaging.requirements import Requirement

    needed: list[str] = []
    extras: dict[str, list[str]] = {str(extra): [] for extra in about.get_all("Provides-Extra") or ()}
    for text in about.get_all("Requires-Dist") or ():
        one = Requirement(text)
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            needed.append(text)
            continue
        for extra, own in extras.items():
            if one.marker.evaluate({"extra": extra}):
                own.append(f"{one.name}{one.specifier}")
    return Bounds(about["Requires-Python"] or "", needed, extras)
