"""Which stored runs belong to a study, and under which of its requests. Imports no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from harness.components.preset import presets_of
from harness.errors import UserError
from harness.study.expansion import expand_stored, parents
from harness.study.study import Request, Study

if TYPE_CHECKING:
    from harness.stores.stored import StoredRun


def members(study: Study, chosen: Sequence[StoredRun], *, searches: bool = False) -> dict[str, list[Request]]:
    """By run id, the requests of the study for the run: of the first row that has it, one per truth that judges it,
    and of the first row for each search that was made with it, and for each split of the truth that judges it.

    A run that the study requests without overrides counts as such, as in the report, whatever overrides it was
    made with. Other runs are matched under their own overrides. With `searches`, also the runs that others start from.
    """
    plain = _matches(study, [(run, {}) for run in chosen], searches)
    changed = [(run, run.overrides) for run in chosen if run.overrides and run.id not in plain]
    return plain | _matches(study, changed, searches)


def _matches(
    study: Study, chosen: Sequence[tuple[StoredRun, Mapping[str, Any]]], searches: bool
) -> dict[str, list[Request]]:
    """By run id, the requests of the study for the run's trial, under the run's preset and the given overrides."""
    presets = presets_of(study.about)
    groups: dict[tuple[str, str], list[StoredRun]] = {}
    with_overrides: dict[tuple[str, str], Mapping[str, Any]] = {}
    for run, overrides in chosen:
        place = (run.preset, repr(sorted(overrides.items())))
        groups.setdefault(place, []).append(run)
        with_overrides[place] = overrides
    found: dict[str, list[Request]] = {}
    for place, group in groups.items():
        preset, _ = place
        if preset not in presets:
            continue
        seeds = sorted({int(run.trial["config"]["seed"]) for run in group})
        try:
            requests = expand_stored(
                study, presets[preset], lambda: (one for one, _ in chosen), 1, with_overrides[place]
            )
        except UserError:  # overrides of another study that fit no row of this one
            continue
        requests += parents(requests) if searches else []
        asked: dict[str, list[Request]] = {}
        for first, seed in product(requests, seeds):
            request = dataclasses.replace(first, seed=seed, trial=first.trial.with_seed(seed))
            same = asked.setdefault(request.trial.key, [])
            another = all(_search_and_split(one) != _search_and_split(request) for one in same)
            if not same or same[0].row == request.row or another:
                same.append(request)
        found |= {run.id: asked[run.key] for run in group if run.key in asked}
    return found


def _search_and_split(request: Request) -> tuple[Any, str]:
    config = request.trial.config
    return config.search, config.rank.truth_split
