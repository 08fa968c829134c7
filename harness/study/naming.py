"""What studies call a trial, and a stored run: for progress lines and for lists of runs. Imports no torch.

A run belongs to no study. Its name is that of the first row that asks for it; the others are known beside it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from harness.components.preset import Preset, presets_of
from harness.errors import DataError
from harness.schema import Naming
from harness.study.layout import Row
from harness.study.members import members
from harness.study.study import Request, Study

if TYPE_CHECKING:
    from harness.stores.stored import StoredRun

SEARCH = "search"
"""The word for a trial that another one starts from."""


def is_start(row: Row, request: Request) -> bool:
    """Whether a request of the row is for the trial that the row's own one starts from."""
    return row.retrains and request.trial.config.retrain is None


def row_name(row: Row, request: Request, preset: Preset, kind: str = "") -> str:
    """The labels of the request's row as one text, with `kind` and what else distinguishes the trials of the row.

    A row has several trials where the preset has several data sets, and where it retrains what a search finds.
    """
    words = [name if value is True else str(value) for name, value in row.labels.items() if value is not False]
    if len(preset.datasets) > 1:
        words.append(request.dataset)
    if (retrain := request.trial.config.retrain) is not None:
        words.append(f"retraining of found {retrain.which}" if retrain.which else "retraining")
    elif is_start(row, request):
        kind = SEARCH
    return " ".join([*words, *([kind] if kind else [])])


def naming(study: Study, named: Request, rows: Mapping[str, str]) -> Naming:
    """The naming of a trial after this request of the study; `rows` are the names of all rows that ask for it."""
    ranking = None
    with contextlib.suppress(DataError):  # without its truth, it is the run's own
        ranking = named.trial.ranking_key
    metrics = [column.metric for column in study.columns_of(named.row)]
    return {"rows": dict(rows), "metrics": metrics, "ranking": ranking}


def namings(studies: Iterable[Study], runs: Sequence[StoredRun]) -> dict[str, Naming]:
    """By run id, what these studies call the runs.

    Which one asked first for a run that several ask for is not known: the one whose rows are there, or most of them.
    """
    presets = {run.id: run.preset for run in runs}
    asked = [(study, members(study, runs, searches=True)) for study in studies]
    found: dict[str, Naming] = {}
    for study, own in sorted(asked, key=_share, reverse=True):
        known = presets_of(study.about)
        for run_id, (request, *_) in own.items():
            name = row_name(study.rows[request.row], request, known[presets[run_id]])
            found.setdefault(run_id, naming(study, request, {}))["rows"][study.name] = name
    return found


def _share(asked: tuple[Study, Mapping[str, Sequence[Request]]]) -> float:
    """The share of a study's rows that have runs."""
    study, own = asked
    rows = [number for number, row in enumerate(study.rows) if row.source == "runs"]
    return len({one.row for requests in own.values() for one in requests}) / max(1, len(rows))
