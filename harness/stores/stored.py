"""A stored run, and what is wrong with one: plain values that readers pass on.

A run's *summary* is all that lists, plans and tables need of it, as plain JSON types. Every kind of store
makes runs from summaries, so that all give equal runs; whether a process still lives is asked when a
summary is read, not when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.owner import is_alive


@dataclass(frozen=True)
class StoredRun:
    """What is stored of one run.

    `status` is one of

    - "done": complete and verified, also when training diverged (`result["diverged"]`);
    - "failed": it ended with an error (`fail_trace`);
    - "interrupted": it was told to stop, and did;
    - "running": its process lives, or, on another host, had a heartbeat within two minutes;
    - "lost": it neither ended nor runs.
    """

    id: str
    key: str
    attempt: int
    trial: dict[str, Any]
    """Configuration and parent, as `Trial.json` gives them."""
    preset: str
    overrides: dict[str, Any]
    status: str
    result: dict[str, Any] | None
    """Deterministic; None unless done. As its own ranking was last judged, which may be later than the run."""
    cost: dict[str, Any] | None
    """Measured; None unless done."""
    rankings: dict[str, dict[str, Any]]
    """What each ranking of the weights gave, by `Trial.ranking_key`; the run's own stands first."""
    start_time: str | None
    stop_time: str | None
    fail_trace: list[str] | None
    invalid: str | None = None
    """Why somebody declared the run invalid: then it is kept, but never counted."""
    superseded: bool = False
    """Whether a newer done run of the same trial exists: then this one is kept, but not counted."""
    own_ranking: str | None = None
    """The ranking that was made with the run, and that its curves were measured by."""
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The configuration (rank and benchmark) of the further rankings; that of its own is the run's."""
    first_rankings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the rankings gave when they were first made, where that is known: what two runs can be compared by."""

    @property
    def counts(self) -> bool:
        """Whether tables may show it."""
        return self.status == "done" and not self.superseded and self.invalid is None

    @property
    def order(self) -> tuple[str, int, str]:
        """Runs sort by trial and attempt; the id tells apart what two machines made without each other."""
        return self.key, self.attempt, self.id


@dataclass(frozen=True)
class Problem:
    """Something in the store that cannot be used, and where it is."""

    place: str
    reason: str


def stored_run(summary: Mapping[str, Any]) -> StoredRun:
    """The run of a summary (`harness.stores.directory.reading.summarise`). Raises `KeyError` for what is none."""
    status = summary["recorded"]
    if status == "open":
        alive = is_alive(summary["owner"], summary["heartbeat"] or summary["start_time"])
        status = "running" if alive else "lost"
    rankings = summary["rankings"]
    own = own_ranking(summary)
    first = {key: result for key, result in rankings.items() if key not in summary.get("recomputed", ())}
    if own is not None:
        first = {own: without_curves(summary["result"]), **{key: first[key] for key in first if key != own}}
    names = "id key attempt preset overrides cost rankings start_time stop_time fail_trace invalid"
    return StoredRun(
        status=status,
        trial=summary["cell"],
        result=newest_result(summary),
        own_ranking=own,
        asked=summary.get("asked", {}),
        first_rankings=first,
        **{name: summary[name] for name in names.split()},
    )


def own_ranking(summary: Mapping[str, Any]) -> str | None:
    """The key of the ranking that was made with a done run, if that is known."""
    # Summaries that were mirrored before do not say it; it stands first in them.
    own = summary["ranking"] if "ranking" in summary else next(iter(summary["rankings"]), None)
    return own if own in summary["rankings"] else None


def newest_result(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """A done run's result as its own ranking was last judged; its curves are those of its training."""
    own = own_ranking(summary)
    result: dict[str, Any] | None = summary["result"]
    return result if result is None or own is None else {**result, **summary["rankings"][own]}


def without_curves(result: Mapping[str, Any]) -> dict[str, Any]:
    """A run's result as a ranking gives it: without what was observed while it trained."""
    return {key: value for key, value in result.items() if key != "observed"}
