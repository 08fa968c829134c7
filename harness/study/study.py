"""Studies, and the trials that they ask for. Imports no torch.

A study is a table: rows of configuration settings, columns of metrics. Expanded under a preset it gives
requests: a trial (what is trained) with a ranking (what is measured). A study is a view of runs, not
their owner: trials are identified by a hash, and tables that overlap share them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from harness.components.preset import default_preset
from harness.errors import InvalidConfiguration
from harness.study.layout import Column, Figure, Labels, Row
from harness.study.trial import Trial


@dataclass(frozen=True)
class Study:
    """A table as configuration. `group` names the label column whose equal values form a block."""

    name: str
    title: str
    rows: Sequence[Row]
    columns: Sequence[Column]
    paper: str = ""
    """The paper's tables that the study rebuilds, separated by commas."""
    group: str | None = None
    figures: Sequence[Figure] = ()
    space: str = ""
    """The space of rows that do not name one themselves; by default the space of the default preset."""
    equal_passes: bool = False
    """Whether `train.epochs` is divided by the passes that a method makes per epoch under every preset, as presets with
    `equal_passes` do for all studies. Epochs that a preset has for single methods do not hold then."""
    remarks: Sequence[str] = ()
    """What a reader must know about the rows; printed under the table."""

    @property
    def about(self) -> str:
        """The space of the study, which determines its presets."""
        named = [row.settings["space"] for row in self.rows if "space" in row.settings]
        return self.space or (str(named[0]) if named else default_preset().space)

    def __post_init__(self) -> None:
        labels = [tuple(row.labels) for row in self.rows]
        if not self.rows or len(set(labels)) != 1:
            raise InvalidConfiguration(f"study {self.name}: every row needs the same label columns, got {set(labels)}")
        if self.group is not None and self.group not in labels[0]:
            raise InvalidConfiguration(f"study {self.name}: group {self.group!r} is not one of {list(labels[0])}")
        names = [figure.name for figure in self.figures]
        if len(set(names)) != len(names):
            raise InvalidConfiguration(f"study {self.name}: two figures have the same name: {names}")


def find_row(study: Study, labels: Labels) -> int:
    """The number of the one row that has these labels. Raises `InvalidConfiguration`."""
    found = [n for n, row in enumerate(study.rows) if all(row.labels.get(name) == one for name, one in labels.items())]
    if len(found) != 1:
        raise InvalidConfiguration(
            f"study {study.name}: {len(found)} rows are labelled {dict(labels)}; a line of a figure needs exactly one"
        )
    return found[0]


@dataclass(frozen=True)
class Request:
    """One run that a study asks for: which row, data set and seed, and the trial itself."""

    study: str
    row: int
    dataset: str
    seed: int
    trial: Trial
    overridden: bool

    @property
    def cell(self) -> Trial:
        """The name of `trial` until version 0.1."""
        warnings.warn("request.cell is called request.trial now", FutureWarning, stacklevel=2)
        return self.trial
