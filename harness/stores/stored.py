"""A stored run, and a problem with one: plain values that readers pass on.

A run's *summary* is everything that lists, plans and tables need of it, as plain JSON types. Every kind of
store makes runs from summaries, so that all give equal runs. Whether a process is still alive is checked when
a summary is read, not when it is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.components.code import UNNAMED_PART, RecordedCode
from harness.documents import Word, flatten
from harness.owner import is_alive
from harness.schema import OBSERVED


class Status(Word):
    """How a run stands."""

    DONE = "done", 'complete and verified, also when training diverged (`result["diverged"]`)'
    FAILED = "failed", "ended with an error (`fail_trace`)"
    INTERRUPTED = "interrupted", "was asked to stop, and did"
    RUNNING = "running", "its process is alive or, on another host, had a heartbeat within two minutes"
    LOST = "lost", "has not ended, and is not running"


ENDS: dict[str, Status] = {status.value: status for status in Status}

SHORT = 8
"""Digits of the hash of a run's code that readers see."""

OPEN = "open"
"""In a summary, the run has not ended: whether it is running or lost depends on when it is read."""


@dataclass(frozen=True)
class StoredRun:
    """What is stored about one run."""

    id: str
    key: str
    attempt: int
    trial: dict[str, Any]
    """Configuration and parent, as `Trial.json` gives them."""
    preset: str
    overrides: dict[str, Any]
    status: Status
    result: dict[str, Any] | None
    """Deterministic; None unless done. Includes the latest judgement of its own ranking, made with the run or later."""
    cost: dict[str, Any] | None
    """Measured; None unless done."""
    rankings: dict[str, dict[str, Any]]
    """What each ranking of the weights gave, by `Trial.ranking_key`; the run's own comes first."""
    start_time: str | None
    stop_time: str | None
    fail_trace: list[str] | None
    invalid: str | None = None
    """Why the run was declared invalid; it is then kept, but never counted. None if it is valid."""
    superseded: bool = False
    """Whether a newer done run of the same trial exists; this one is then kept, but not counted."""
    own_ranking: str | None = None
    """Key of the ranking that was made with the run; its curves were measured by that ranking."""
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Configuration (rank and benchmark) of the further rankings. The run's own ranking has the run's configuration."""
    first_rankings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Results of the rankings when they were first made, where known. Two runs are compared by these."""

    owner: dict[str, Any] = field(default_factory=dict)
    """The process that made the run; see `harness.owner`."""

    heartbeat: str | None = None
    """When that process last wrote that it is alive."""

    commit: str | None = None
    """The harness's commit; with changed files, `-dirty` behind it."""

    rows: Mapping[str, str] = field(default_factory=dict)
    """By study that asked for the run, the name of its row; the first to ask comes first."""
    code: Mapping[str, RecordedCode] = field(default_factory=dict)
    """By part of the trial, the code of the components that are the user's own."""

    @property
    def source(self) -> str | None:
        """A short hash of that code; None for a run of shipped components alone."""
        versions = sorted({one.code for part, one in self.code.items() if not part.startswith(UNNAMED_PART)})
        return hashlib.sha256(" ".join(versions).encode()).hexdigest()[:SHORT] if versions else None

    @property
    def counts(self) -> bool:
        """Whether tables may show the run."""
        return self.status is Status.DONE and not self.superseded and self.invalid is None

    @property
    def order(self) -> tuple[str, int, str]:
        """Sort key: trial and attempt. The id distinguishes attempts that two machines made independently."""
        return self.key, self.attempt, self.id


@dataclass(frozen=True)
class Problem:
    """Something in the store that cannot be used, and where it is."""

    place: str
    reason: str
    harmless: bool = False
    """Whether the run counts all the same: the log, or a copy of a source file, is damaged."""
    unreadable: bool = False
    """Whether the machine cannot read it now. It may be intact: nothing is trained in its place."""

    @property
    def effect(self) -> str:
        """What it means for readers."""
        if self.unreadable:
            return "unreadable now and not counted"
        return "damaged" if self.harmless else "damaged and not counted"


def stored_run(summary: Mapping[str, Any]) -> StoredRun:
    """The run of a summary (`harness.stores.directory.reading.summarise`). Raises `KeyError` if it is not one."""
    if summary["recorded"] == OPEN:
        alive = is_alive(summary["owner"], summary["heartbeat"] or summary["start_time"])
        status = Status.RUNNING if alive else Status.LOST
    else:
        status = ENDS.get(summary["recorded"]) or Status(summary["recorded"])
    rankings = summary["rankings"]
    own = own_ranking(summary)
    recomputed = summary.get("recomputed", ())
    first = {key: result for key, result in rankings.items() if key not in recomputed} if recomputed else rankings
    if own is not None:
        first = {own: without_curves(summary["result"]), **{key: first[key] for key in first if key != own}}
    return StoredRun(
        id=summary["id"],
        key=summary["key"],
        attempt=summary["attempt"],
        trial=summary["cell"],
        preset=summary["preset"],
        overrides=summary["overrides"],
        status=status,
        result=newest_result(summary),
        cost=summary["cost"],
        rankings=rankings,
        start_time=summary["start_time"],
        stop_time=summary["stop_time"],
        fail_trace=summary["fail_trace"],
        invalid=summary["invalid"],
        owner=summary["owner"],
        heartbeat=summary["heartbeat"],
        commit=summary.get("commit"),
        rows=summary.get("rows", {}),
        own_ranking=own,
        asked=summary.get("asked", {}),
        first_rankings=first,
        code={part: RecordedCode(*versions) for part, versions in summary.get("code", {}).items()},
    )


def own_ranking(summary: Mapping[str, Any]) -> str | None:
    """The key of the ranking that was made with a done run, if known."""
    # Summaries mirrored by older versions lack the field; there the own ranking comes first.
    own = summary["ranking"] if "ranking" in summary else next(iter(summary["rankings"]), None)
    return own if own in summary["rankings"] else None


def newest_result(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """A done run's result with the latest judgement of its own ranking; its curves are those of its training."""
    own = own_ranking(summary)
    result: dict[str, Any] | None = summary["result"]
    return result if result is None or own is None else {**result, **summary["rankings"][own]}


def final_values(result: Mapping[str, Any], cost: Mapping[str, Any]) -> dict[str, Any]:
    """What a done run ended with, by dotted names: its result, its cost, and the last value of each curve."""
    last = {name: points[-1][1] for name, points in (result.get(OBSERVED) or {}).items() if points}
    return flatten({**last, **cost, **without_curves(result)})


def agree(one: Any, other: Any) -> bool:
    """Whether two results are equal in all that both hold: a newer version of the harness measures more."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return all(agree(one[key], other[key]) for key in one.keys() & other.keys())
    return bool(one == other)


def without_curves(result: Mapping[str, Any]) -> dict[str, Any]:
    """A run's result in the form of a ranking's result: without what was observed during training."""
    return {key: value for key, value in result.items() if key != OBSERVED}
