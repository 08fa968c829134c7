"""Stored runs of the same code under other versions: a trial is made with the versions of the run that answers it.

Code has several versions if an earlier version of the harness, which hashed the text of the file, made some runs, or if
the user has declared versions equal (`harness store accept`). A trial whose run is stored under such a version takes
that version, and so the run's key: children, rankings and references then fit, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from harness.components.code import MARK, RecordedCode
from harness.errors import DataError, UserError
from harness.study.configuration import Observe
from harness.study.reader import read

if TYPE_CHECKING:
    from harness.study.fingerprints import Fingerprints
    from harness.study.trial import Trial

Recorded: TypeAlias = tuple[tuple[str, str], ...]
"""Versions by the part of the trial that they are about."""


class Coded(Protocol):
    """What is used of a stored run."""

    @property
    def key(self) -> str: ...

    @property
    def counts(self) -> bool: ...

    @property
    def trial(self) -> dict[str, Any]: ...

    @property
    def own_ranking(self) -> str | None: ...

    @property
    def rankings(self) -> dict[str, dict[str, Any]]: ...

    @property
    def code(self) -> Mapping[str, RecordedCode]: ...


@dataclass(frozen=True)
class KnownCode:
    """The runs that count, and the versions of users' code that runs were made with."""

    counted: Mapping[str, Coded] = field(default_factory=dict)
    """By key."""
    versions: frozenset[RecordedCode] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.versions)

    @classmethod
    def of(cls, runs: Iterable[Coded]) -> KnownCode:
        listed = [run for run in runs if run.counts]
        return cls({run.key: run for run in listed}, frozenset(one for run in listed for one in run.code.values()))

    def like(self, today: str) -> list[str]:
        """The other versions of the code that has this version today."""
        same = [one for one in self.versions if one.is_like(today)]
        declared = {version for one in same for version in one.equal if version.startswith(MARK)}
        return sorted(({one.version for one in same} | declared) - {today})

    def answer(self, candidates: Iterable[Trial]) -> Trial | None:
        """The first trial whose run has its ranking, else the first that has a run; None if none has one."""
        known = [one for one in candidates if one.key in self.counted and self._observed(one)]
        for one in known:
            if ranking_of(one) in self.counted[one.key].rankings:
                return one
        return known[0] if known else None

    def _observed(self, trial: Trial) -> bool:
        """Whether the trial's run holds the observations that the trial asks for."""
        run, wanted = self.counted[trial.key], trial.config.observe
        try:
            stored = read(Observe, run.trial["config"]["observe"], "observe")
        except (UserError, KeyError, TypeError):  # by another version
            return False
        return stored.union(wanted) == stored and not (wanted.judges and ranking_of(trial) != run.own_ranking)


def ranking_of(trial: Trial) -> str | None:
    """The key of the trial's ranking; None if its table is not here and stored runs know several."""
    try:
        return trial.ranking_key
    except DataError:  # readers that need the ranking raise it again
        return None


NO_CODE = KnownCode()
"""No run is known."""


def settled(like: Trial, seed: int, known: Fingerprints) -> Trial:
    """The trial with that seed, under the versions of the stored run that has the same code, if there is one."""
    today = like.twin(seed, None if like.start is None else like.start.with_seed(seed))
    if not known.code or not (like.own_code or (like.start is not None and like.start.own_code)):
        return today
    return known.code.answer(_candidates(like, seed, known, today)) or today


def _candidates(like: Trial, seed: int, known: Fingerprints, today: Trial) -> Iterator[Trial]:
    """The trial as of today, then under every combination of versions of the same code, its start's included."""
    yield today
    starts: list[Trial | None] = [None]
    if like.start is not None:
        start = like.start.with_seed(seed)
        plain = like.start.twin(seed, None)
        every = (start, *_candidates(like.start, seed, known, plain))
        starts = list({one.search: one for one in every}.values())
    for start_of, other in product(starts, [like, *_others(like, known)]):
        if other is not like or start_of is not None:
            yield other.twin(seed, start_of)


def _others(like: Trial, known: Fingerprints) -> list[Trial]:
    """The trial under every other combination of versions of the same code; made once."""
    if "_others" not in vars(like):
        options = {today: [today, *known.code.like(today)] for today in set(like.own_code.values())}
        chosen = [dict(zip(options, versions, strict=True)) for versions in product(*options.values())]
        vars(like)["_others"] = [
            like.under(tuple(sorted((part, versions[today]) for part, today in like.own_code.items())), like.start)
            for versions in chosen
            if any(today != version for today, version in versions.items())
        ]
    others: list[Trial] = vars(like)["_others"]
    return others
