"""Studies, and the trials that they request. Imports no torch.

A study is a table: rows of configuration settings, columns of metrics. Expanded under a preset it gives
requests: a trial (what is trained) with a ranking (what is measured). A study is a view of runs, not
their owner: trials are identified by a hash, and tables that overlap share them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from harness.components.preset import default_preset
from harness.errors import InvalidConfiguration
from harness.files import check_name
from harness.study.layout import Column, Comparison, Figure, Labels, Pilot, Row
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
    comparisons: Sequence[Comparison] | None = None
    """The rows to compare; by default each row of a group with its first, on the first column that has a best."""
    primary: Sequence[str | Comparison] = ()
    """The two or three contrasts that the study is about: effects of its factors, by name ("CaLR", "CaLR × MS"), or
    comparisons. They are about the first data set of the preset."""
    pilots: Mapping[str, Pilot] = field(default_factory=dict)
    """By preset, what the number of seeds was planned by."""
    factors: Sequence[str] = ()
    """The label columns that the rows cross, each combination once: reports give their effects and interactions."""
    equal_passes: bool = False
    """Whether `train.epochs` is divided by the passes that a method makes per epoch under every preset, as presets with
    `equal_passes` do for all studies. Epochs that a preset has for single methods do not hold then."""
    references: bool = False
    """Whether the table has rows of references without `--references`; `run` then makes those on request, too."""
    remarks: Sequence[str] = ()
    """What a reader must know about the rows; printed under the table."""
    chooses: str = ""
    """The option whose value the table is there to choose: reports say by which accuracies it is chosen."""
    by_name_only: bool = False
    """Whether `--all` leaves the study out: for many trials that no other table needs."""

    @property
    def about(self) -> str:
        """The space of the study, which determines its presets."""
        named = [row.settings["space"] for row in self.rows if "space" in row.settings]
        return self.space or (str(named[0]) if named else default_preset().space)

    def columns_of(self, row: int) -> list[Column]:
        """The columns, with the metrics that this row shows in their place."""
        instead = self.rows[row].metrics
        return [replace(column, metric=instead.get(column.metric, column.metric)) for column in self.columns]

    def __post_init__(self) -> None:
        check_name("study", self.name)
        for figure in self.figures:
            check_name(f"study {self.name}: figure", figure.name)
        labels = [tuple(row.labels) for row in self.rows]
        if not self.rows or len(set(labels)) != 1:
            raise InvalidConfiguration(f"study {self.name}: every row needs the same label columns, got {set(labels)}")
        if self.group is not None and self.group not in labels[0]:
            raise InvalidConfiguration(f"study {self.name}: group {self.group!r} is not one of {list(labels[0])}")
        names = [figure.name for figure in self.figures]
        if len(set(names)) != len(names):
            raise InvalidConfiguration(f"study {self.name}: two figures have the same name: {names}")
        self._check_comparisons()
        self._check_factors()
        self._check_primary()

    def _check_comparisons(self) -> None:
        shown = [column.metric for column in self.columns]
        for one in self.comparisons or ():
            rows = [find_row(self, labels, "a comparison") for labels in (one.first, one.second)]
            if rows[0] == rows[1]:
                raise InvalidConfiguration(f"study {self.name}: {dict(one.first)} is compared with itself")
            for row in (self.rows[number] for number in rows):
                if row.source != "runs":
                    raise InvalidConfiguration(
                        f"study {self.name}: {dict(row.labels)} is compared, but has no runs "
                        f"(its source is {row.source!r})"
                    )
        for one in [*(self.comparisons or ()), *(one for one in self.primary if isinstance(one, Comparison))]:
            if one.metric and one.metric not in shown:
                raise InvalidConfiguration(
                    f"study {self.name}: a comparison is on {one.metric!r}, which no column shows; "
                    f"columns show: {', '.join(shown)}"
                )

    def _check_primary(self) -> None:
        from harness.study.comparisons import primary_contrasts

        primary_contrasts(self)

    def _check_factors(self) -> None:
        """The rows with runs must cross all factors: only then does one factor's effect not depend on the others."""
        labels = tuple(self.rows[0].labels)
        if unknown := [name for name in self.factors if name not in labels]:
            raise InvalidConfiguration(f"study {self.name}: factor {unknown[0]!r} is not one of {list(labels)}")
        found = [tuple(row.labels[name] for name in self.factors) for row in self.rows if row.source == "runs"]
        levels = [dict.fromkeys(one[place] for one in found) for place in range(len(self.factors))]
        if self.factors and (len(set(found)) < len(found) or len(found) < math.prod(map(len, levels))):
            raise InvalidConfiguration(
                f"study {self.name}: the rows do not cross the factors {', '.join(self.factors)}: each combination of "
                f"their values needs exactly one row, {math.prod(map(len, levels))} in all; there are {len(found)}"
            )


def find_row(study: Study, labels: Labels, needing: str = "a line of a figure") -> int:
    """The number of the one row that has these labels. Raises `InvalidConfiguration`, which says what needs the row."""
    found = [n for n, row in enumerate(study.rows) if all(row.labels.get(name) == one for name, one in labels.items())]
    if len(found) != 1:
        raise InvalidConfiguration(
            f"study {study.name}: {len(found)} rows are labelled {dict(labels)}; {needing} needs exactly one"
        )
    return found[0]


@dataclass(frozen=True)
class Request:
    """One run that a study requests: which row, data set and seed, and the trial itself."""

    study: str
    row: int
    dataset: str
    seed: int
    trial: Trial
    overridden: bool
    devices: float | None = None
    """The GPUs that the row needs for it; see `Row.devices`."""
