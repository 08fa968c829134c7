"""What identities depend on besides the configuration: local files, and those that stored runs were made with.

Commands that only read or plan must work without the files. Missing images and tables are then assumed to be those of
the stored runs. What is known of stored runs is a value (`Fingerprints`) that a trial is made with: the identity of a
trial never depends on what the process has read before.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.components.benchmark import open_benchmark
from harness.components.dataset import fingerprint as dataset_fingerprint
from harness.documents import canonical
from harness.errors import DataError, UserError
from harness.study.configuration import Ranking, RunConfig
from harness.study.reader import read
from harness.study.versions import NO_CODE, Coded, KnownCode

KNOWN_BY_MEANING = ("truth", "selection_on", "top1", "top_share", "top_sample", "complexity")
"""Settings of a ranking that enter its key by their meaning, not by their text."""

NOT_HERE = "not here"
"""Placeholder for an unknown fingerprint of images or a ranking; matches no stored run."""


class Recorded(Coded, Protocol):
    """What is used of a stored run."""

    @property
    def asked(self) -> dict[str, dict[str, Any]]: ...


@dataclass(frozen=True)
class Fingerprints:
    """What stored runs say of images and tables that are not here. Empty: nothing is known."""

    recorded: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By data set, the fingerprints of the images that runs were made with."""
    judged: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By the request (`_asked`), the keys of the rankings of runs."""
    code: KnownCode = NO_CODE
    """The versions of users' code that runs were made with."""

    @classmethod
    def of(cls, runs: Iterable[Recorded]) -> Fingerprints:
        """What these runs say."""
        recorded: dict[str, set[str]] = {}
        judged: dict[str, set[str]] = {}
        runs = list(runs)
        for run in runs:
            config = run.trial["config"]
            if run.trial.get("images"):
                recorded.setdefault(config["dataset"], set()).add(run.trial["images"])
            if not run.counts:
                continue
            own = {} if run.own_ranking is None else {run.own_ranking: config}
            for key, asked in {**own, **run.asked}.items():
                with contextlib.suppress(UserError, KeyError, TypeError):  # requested by another version: unknown
                    rank = read(Ranking, asked["rank"], "rank")
                    request = _asked(rank, asked["benchmark"], config["dataset"], asked.get("search"))
                    judged.setdefault(request, set()).add(key)
        return cls(
            {name: frozenset(found) for name, found in recorded.items()},
            {name: frozenset(found) for name, found in judged.items()},
            KnownCode.of(runs),
        )

    def images(self, dataset: str) -> str | None:
        """The value of `Trial.images` for a data set: of the local files, or if these are missing, of the stored runs.

        Raises `DataError` if the files are missing and the stored runs do not agree.
        """
        try:
            return dataset_fingerprint(dataset)
        except DataError as error:
            known = self.recorded.get(dataset, {NOT_HERE})
            if len(known) > 1:
                text = f"{error}; the stored runs were made with {len(known)} different versions of it"
                raise DataError(text) from error
            return next(iter(known))

    def ranking(self, config: RunConfig, error: DataError) -> str:
        """The key that stored runs have for a configuration's ranking, for a missing table of truth (`error`).

        Raises `DataError` if these runs do not agree.
        """
        search = config.json().get("search")
        known = self.judged.get(_asked(config.rank, config.benchmark, config.dataset, search), {NOT_HERE})
        if len(known) > 1:
            raise DataError(f"{error}; the stored runs were judged by {len(known)} versions of it") from error
        return next(iter(known))


HERE = Fingerprints()
"""Only the local files are known."""


def are_here(dataset: str) -> bool:
    """Whether the files of a data set are present and valid."""
    try:
        dataset_fingerprint(dataset)
    except DataError:
        return False
    return True


def can_be_judged(benchmark: str | None) -> bool:
    """Whether the table of a benchmark is present and valid; so is the want of a table."""
    try:
        if benchmark is not None:
            open_benchmark(benchmark)
    except DataError:
        return False
    return True


def _asked(rank: Ranking, benchmark: str | None, dataset: str, search: Any = None) -> str:
    """Everything that a ranking's key covers except the truth itself."""
    asked = {key: value for key, value in vars(rank).items() if key not in KNOWN_BY_MEANING}
    share = None if rank.top_share is None else [rank.top_share, rank.top_sample, rank.complexity]
    return canonical([asked, benchmark, rank.truth_of(dataset), rank.selects_on(dataset), rank.top1, share, search])
