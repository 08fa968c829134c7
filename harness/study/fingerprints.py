"""What is known of images and tables of truth: of those that are here, and of those that stored runs were made with.

What only reads or plans must work where the files are missing. Then images and tables are taken to be those of the
stored runs that were looked at, which are remembered here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from harness.components.dataset import fingerprint as dataset_fingerprint
from harness.components.registries import BENCHMARKS
from harness.documents import canonical
from harness.errors import DataError, UserError
from harness.stores.stored import StoredRun
from harness.study.configuration import Ranking, RunConfig
from harness.study.reader import read

KNOWN_BY_MEANING = ("truth", "selection_on", "top1", "top_share", "top_sample", "complexity")
"""Settings of a ranking whose meaning, not whose text, is part of its key."""

NOT_HERE = "not here"
"""Stands for images, or a judgement, that nothing is known of: no stored run has them."""

_recorded: dict[str, set[str]] = {}
"""By data set, the images that stored runs were made with."""

_judged: dict[str, set[str]] = {}
"""By what was asked of them, the keys that the rankings of stored runs have."""


def images_of(dataset: str) -> str | None:
    """What `Trial.images` is for that data set.

    Files that are missing do no harm to what only reads or plans: then it is what all stored runs that were
    looked at so far have (`remember_images`). Raises `DataError` when these do not agree.
    """
    try:
        return dataset_fingerprint(dataset)
    except DataError as error:
        known = _recorded.get(dataset, {NOT_HERE})
        if len(known) > 1:
            raise DataError(f"{error}; the stored runs were made with {len(known)} different versions of it") from error
        return next(iter(known))


def remembered_ranking(config: RunConfig, error: DataError) -> str:
    """The key that stored runs have for the ranking that a configuration asks for, whose table is missing (`error`).

    Raises `DataError` when they do not agree.
    """
    known = _judged.get(_asked(config.rank, config.benchmark, config.dataset), {NOT_HERE})
    if len(known) > 1:
        raise DataError(f"{error}; the stored runs were judged by {len(known)} versions of it") from error
    return next(iter(known))


def are_here(dataset: str) -> bool:
    """Whether the files of a data set are here, and right."""
    try:
        dataset_fingerprint(dataset)
    except DataError:
        return False
    return True


def remember_images(trials: Iterable[Mapping[str, Any]]) -> None:
    """Know the images that stored runs (as `Trial.json` gives their trials) were made with."""
    for trial in trials:
        if trial.get("images"):
            _recorded.setdefault(trial["config"]["dataset"], set()).add(trial["images"])


def can_be_judged(benchmark: str) -> bool:
    """Whether the table of a benchmark is here, and right."""
    try:
        BENCHMARKS.get(benchmark)()
    except DataError:
        return False
    return True


def remember_rankings(runs: Iterable[StoredRun]) -> None:
    """Know how the rankings of these runs were asked for, and no longer those of others."""
    _judged.clear()
    for run in runs:
        if not run.counts:
            continue
        config = run.trial["config"]
        own = {} if run.own_ranking is None else {run.own_ranking: config}
        for key, asked in {**own, **run.asked}.items():
            with contextlib.suppress(UserError, KeyError, TypeError):  # asked for by another version: not known
                rank = read(Ranking, asked["rank"], "rank")
                _judged.setdefault(_asked(rank, asked["benchmark"], config["dataset"]), set()).add(key)


def _asked(rank: Ranking, benchmark: str, dataset: str) -> str:
    """All that a ranking's key stands for but the truth itself."""
    asked = {key: value for key, value in vars(rank).items() if key not in KNOWN_BY_MEANING}
    share = None if rank.top_share is None else [rank.top_share, rank.top_sample, rank.complexity]
    return canonical([asked, benchmark, rank.truth_of(dataset), rank.selects_on(dataset), rank.top1, share])
