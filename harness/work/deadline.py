"""The time at which a worker must be gone, as where a scheduler ends it. Imports no torch."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta

MARGIN = 300.0
"""Most seconds before the deadline at which running trials are asked to save."""

SHARE = 0.1
"""The same as a share of the whole time: a short time is not all margin."""

START = 2.0
"""Seconds until a trial's process has made its first step."""


@dataclass(frozen=True)
class Deadline:
    """When a worker must be gone. Times are those of `time.time()`."""

    end: float
    begun: float = field(default_factory=time.time)

    @property
    def stop(self) -> float:
        """When running trials are asked to save."""
        return self.end - min(MARGIN, SHARE * max(0.0, self.end - self.begun))

    @property
    def left(self) -> float:
        """Seconds until then."""
        return max(0.0, self.stop - time.time())

    def allows(self, seconds: float) -> bool:
        """Whether work that is lost before so many seconds can begin now."""
        return self.left >= START + seconds

    def ever_allowed(self, seconds: float) -> bool:
        """Whether it could have begun when the worker did: if not, no other worker with as much time can begin it."""
        return self.stop - self.begun >= START + seconds


def moment(text: str, now: datetime | None = None) -> float | None:
    """The time that a text names: "14:30", or a date and a time as "2026-11-17T14:30"; None if it is neither."""
    now = now or datetime.now()
    if match := re.fullmatch(r"(\d{1,2}):(\d\d)(?::(\d\d))?", text):
        try:
            found = now.replace(hour=int(match[1]), minute=int(match[2]), second=int(match[3] or 0), microsecond=0)
        except ValueError:
            return None
        return (found if found > now else found + timedelta(days=1)).timestamp()
    try:
        return datetime.fromisoformat(text).timestamp() if "T" in text or " " in text else None
    except ValueError:
        return None
