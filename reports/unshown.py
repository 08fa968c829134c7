"""Runs of a study that its table does not show, and the options that show them: seeds, presets, overrides."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from harness.study.overrides import as_typed
from harness.study.study import Request, Study

if TYPE_CHECKING:
    from harness.stores.store import Store
    from harness.stores.stored import StoredRun

LISTED = 5
"""Maximum number of lines about other presets and overrides."""


def more_seeds(requests: Sequence[Request], store: Store) -> list[str]:
    """A line on stored runs of further seeds, from the first one that was not asked for on."""
    asked = 1 + max(request.seed for request in requests)
    trials = [request.trial for request in requests if request.seed == 0]
    found = 0
    for seed in count(asked):
        keys = {trial.with_seed(seed).key for trial in trials}
        stored = sum(run.counts and run.key in keys for run in store.runs(keys))
        if not stored:
            break
        found += stored
    if not found:
        return []
    seeds = f"seed{'s' * (seed - asked > 1)} {asked}" + (f" to {seed - 1}" * (seed - asked > 1))
    return [f"Not in the table: {found} stored run{'s' * (found > 1)} of {seeds}; --seeds {seed} shows them."]


def other_scales(study: Study, store: Store) -> list[str]:
    """Lines on the study's runs by preset and overrides, for a table that has none of them."""
    from harness.results import runs

    ours = set(runs(study, store).run_id)
    return by_scale([run for run in store.runs() if run.id in ours], " of this study")


def by_scale(runs: Iterable[StoredRun], whose: str = "") -> list[str]:
    """How many runs there are of each preset with its overrides, most first; and how to ask for them."""
    scales = Counter(shlex.join([run.preset, *_with(run.overrides)]) for run in runs)
    return [
        f"{number} run{'s' * (number > 1)}{whose} {'are' if number > 1 else 'is'} stored under preset {scale}: "
        f"--preset {scale}"
        for scale, number in scales.most_common(LISTED)
    ]


def _with(overrides: Mapping[str, Any]) -> list[str]:
    return ["with", *as_typed(overrides)] if overrides else []
