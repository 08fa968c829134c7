"""Shared by the `store` commands: options, and sizes for readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from harness.cli._values import Size
from harness.documents import amount as amount

if TYPE_CHECKING:
    from pathlib import Path

    from harness.stores.opened import Opened

work_option = click.option(
    "--work", type=click.Path(file_okay=False), help="Folder of the checkpoints.  [default: STORE/work]"
)

weights_option = click.option(
    "--mirror-weights-max",
    type=Size(),
    default="64MB",
    show_default=True,
    help="Do not mirror weight files larger than this; they stay in the run directory.",
)


def checkpoint_folder(opened: Opened, given: str | None) -> Path | None:
    """The folder of the checkpoints."""
    from pathlib import Path

    if given:
        return Path(given)
    return None if opened.here is None else opened.here.work
