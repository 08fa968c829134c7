"""Where data is looked for, and where decoded data is kept. Knows no data set."""

from __future__ import annotations

import os
from pathlib import Path

DATA, FOLDER, CACHE = "HARNESS_DATA", "HARNESS_DATA_FOLDER", "HARNESS_CACHE"
"""The environment variables that say otherwise."""


def data_folder() -> Path:
    """Where all data sets lie: `HARNESS_DATA`, by default `./data`."""
    return Path(os.environ.get(DATA) or "data").expanduser()


def image_folder() -> Path:
    """Where the data set `folder` lies: `HARNESS_DATA_FOLDER`, by default `folder` among the others."""
    chosen = os.environ.get(FOLDER)
    return Path(chosen).expanduser() if chosen else data_folder() / "folder"


def cache_folder() -> Path:
    """Where decoded data is kept: `HARNESS_CACHE`, by default in the user's own cache.

    Not beside the data: that often lies in a folder which many read and nobody may write to.
    """
    if chosen := os.environ.get(CACHE):
        return Path(chosen).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser() / "nas-harness"
    try:
        return Path.home() / ".cache" / "nas-harness"
    except RuntimeError:  # a user without a home
        return data_folder() / ".cache"
