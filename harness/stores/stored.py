"""A stored run, and what is wrong with one: plain values that readers pass on.

A run's *summary* is all that lists, plans and tables need of it, as plain JSON types. Every kind of store
makes runs from summaries, so that all give equal runs; whether a process still lives is asked when a
summary is read, not when it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.stores.owner import is_alive


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
    cell: dict[str, Any]
    """Configuration and parent, as `Cell.json` gives them."""
    preset: str
    overrides: dict[str, Any]
    status: str
    result: dict[str, Any] | None
    """Deterministic; None unless done."""
    cost: dict[str, Any] | None
    """Measured; None unless done."""
    rankings: dict[str, dict[str, Any]]
    """What each ranking of the weights gave, by `Cell.ranking_key`; the run's own stands first."""
    start_time: str | None
    stop_time: str | None
    fail_trace: list[str] | None
    invalid: str | None = None
    """Why somebody declared the run invalid: then it is kept, but never counted."""
    superseded: bool = False
    """Whether a newer done run of the same cell exists: then this one is kept, but not counted."""

    @property
    def own_ranking(self) -> str | None:
        """The ranking that was made with the run, and that its curves were measured by."""
        return next(iter(self.rankings), None)

    @property
    def counts(self) -> bool:
        """Whether tables may show it."""
        return self.status == "done" and not self.superseded and self.invalid is None

    @property
    def order(self) -> tuple[str, int, str]:
        """Runs sort by cell and attempt; the id tells apart what two machines made without each other."""
        return self.key, self.attempt, self.id


@dataclass(frozen=True)
class Problem:
    """Something in the store that cannot be used, and where it is."""

    place: str
    reason: str


def stored_run(summary: Mapping[str, Any]) -> StoredRun:
    """The run of a summary (`harness.stores.reading.summarise`). Raises `KeyError` for what is none."""
    status = summary["recorded"]
    if status == "open":
        alive = is_alive(summary["owner"], summary["heartbeat"] or summary["start_time"])
        status = "running" if alive else "lost"
    names = "id key attempt cell preset overrides result cost rankings start_time stop_time fail_trace invalid"
    return StoredRun(status=status, **{name: summary[name] for name in names.split()})
