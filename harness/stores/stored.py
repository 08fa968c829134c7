"""A stored run, and what is wrong with one: plain values that readers pass on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class StoredRun:
    """What one run directory says.

    `status` is one of

    - "done": complete and verified, also when training diverged (`result["diverged"]`);
    - "failed": it ended with an error (`fail_trace`);
    - "interrupted": it was told to stop, and did;
    - "running": its process lives, or, on another host, had a heartbeat within two minutes;
    - "lost": it neither ended nor runs.
    """

    id: str
    path: Path
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
    superseded: bool = False
    """Whether a newer done run of the same cell exists: then this one is kept, but not counted."""

    @property
    def own_ranking(self) -> str | None:
        """The ranking that was made with the run, and that its curves were measured by."""
        return next(iter(self.rankings), None)


@dataclass(frozen=True)
class Problem:
    """Something in the store that cannot be used."""

    path: Path
    reason: str
