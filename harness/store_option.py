"""Where the runs are: one rule for every command and for the results API. Imports click only."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

VARIABLE = "HARNESS_STORE"
DEFAULT = "runs"


def store_path(given: str | os.PathLike[str] | None = None) -> Path:
    """The store's directory: as given, or else what `HARNESS_STORE` says, or else `runs` in the current directory."""
    return Path(given or os.environ.get(VARIABLE) or DEFAULT)


def store_option(command: F) -> F:
    """Adds `--store DIR` to a command, which gets the resolved directory as its argument `store`."""
    return click.option(
        "--store",
        metavar="DIR",
        type=click.Path(file_okay=False),
        callback=lambda context, option, value: store_path(value),
        help=f"Where the runs are kept.  [default: {VARIABLE} from the environment, or ./{DEFAULT}]",
    )(command)
