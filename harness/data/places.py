"""The folders of data and of decoded data. Independent of data sets."""

from __future__ import annotations

import os
from pathlib import Path

DATA, FOLDER, CACHE = "HARNESS_DATA", "HARNESS_DATA_FOLDER", "HARNESS_CACHE"
LATENCY = "HARNESS_LATENCY"
"""The environment variables that override the defaults."""


def data_folder() -> Path:
    """The folder of all data sets: `HARNESS_DATA`, by default `./data`."""
    return Path(os.environ.get(DATA) or "data").expanduser()


def image_folder() -> Path:
    """The folder of the data set `folder`: `HARNESS_DATA_FOLDER`, by default `folder` in the data folder."""
    chosen = os.environ.get(FOLDER)
    return Path(chosen).expanduser() if chosen else data_folder() / "folder"


def latency_folder() -> Path:
    """The folder of measured latencies: `HARNESS_LATENCY`, by default `latency` in the data folder."""
    chosen = os.environ.get(LATENCY)
    return Path(chosen).expanduser() if chosen else data_folder() / "latency"


def weights_folder() -> Path:
    """The folder of imported weights of supernets: `weights` in the data folder."""
    return data_folder() / "weights"


def cache_folder() -> Path:
    """The folder of decoded data: `HARNESS_CACHE`, by default in the user's own cache.

    Not beside the data, because that is often in a shared read-only folder.
    """
    if chosen := os.environ.get(CACHE):
        return Path(chosen).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser() / "nas-harness"
    try:
        return Path.home() / ".cache" / "nas-harness"
    except RuntimeError:  # a user without a home
        return data_folder() / ".cache"
