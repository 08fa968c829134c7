"""Settings of the folder one works in: `harness.toml`, or the table `[tool.harness]` of its `pyproject.toml`.

They are defaults of options: the command line wins over the environment, and the environment over the file. Only the
current folder is read, so that a command does what its folder says.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from harness.errors import UnknownName, UserError

FILE = "harness.toml"
KINDS: dict[str, tuple[type, ...]] = {
    "store": (str,),
    "mongo": (str,),
    "preset": (str,),
    "jobs": (int,),
    "threads": (int,),
    "work": (str,),
    "timeout": (int, float, str),
    "lease": (int, float, str),
    "checkpoint-every": (int, float, str),
    "outage-wait": (int, float, str),
    "mirror-weights-max": (int, float, str),
    "notify": (str,),
    "images": (dict,),
}
"""The settings, which are named like options, and the types of their values."""

IMAGES = "images"
"""A table of image folders, by the names of their data sets."""

PLACES = ("store", "mongo", "preset", IMAGES)
"""Settings that are read where they are used; the others are defaults of the options of their names."""


def settings() -> dict[str, Any]:
    """The settings of the current folder. Raises `UserError` for a file that is not valid."""
    file = Path(FILE)
    if file.is_file():
        return _checked(file, FILE, _read(file))
    project = Path("pyproject.toml")
    if project.is_file() and b"[tool.harness" in project.read_bytes():
        return _checked(project, "[tool.harness] of pyproject.toml", _read(project)["tool"]["harness"])
    return {}


def option_defaults() -> dict[str, Any]:
    """Settings that are defaults of options, by the names of these in code."""
    return {key.replace("-", "_"): value for key, value in settings().items() if key not in PLACES}


def image_folders() -> dict[str, Path]:
    """The image folders of the settings, by the names of their data sets."""
    return {name: Path(place).expanduser() for name, place in settings().get(IMAGES, {}).items()}


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file.absolute()} cannot be read: {error}") from error


def _checked(file: Path, title: str, found: Any) -> dict[str, Any]:
    """The settings, if each is known and of an allowed type."""
    if not isinstance(found, dict):
        raise UserError(f"{title} must be a table of settings")
    for key, value in found.items():
        if key not in KINDS:
            raise UserError(f"{file}: {UnknownName.among('setting', key, KINDS)}")
        if isinstance(value, bool) or not isinstance(value, KINDS[key]):
            allowed = " or ".join(kind.__name__ for kind in KINDS[key])
            raise UserError(f"{file}: {key} must be {allowed}, not {value!r}")
    for name, folder in found.get(IMAGES, {}).items():
        if not isinstance(folder, str):
            raise UserError(f"{file}: {IMAGES}.{name} must be a folder, not {folder!r}")
    return found
