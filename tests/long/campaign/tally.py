"""What came of the attacks: tries and failures, counted by kind, and the table of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

KINDS = ("tracebacks", "wrong", "lost", "doubled", "hangs", "other")
"""Wrong: a value is counted that was never measured. Lost: a run is missing, and nothing says so. Other: code of
somebody else's ran, a file was written outside, damage was not named, or one bad document blocks all others."""


class Hang(BaseException):
    """A command did not end in its time. Not an `Exception`: nothing may catch it."""


@dataclass
class Attempt:
    """One try of an attack."""

    what: str
    failures: list[tuple[str, str]] = field(default_factory=list)

    def fail(self, kind: str, why: str) -> None:
        assert kind in KINDS, kind
        self.failures.append((kind, why))

    def require(self, held: bool, kind: str, why: str) -> None:
        if not held:
            self.fail(kind, why)


@dataclass
class Tally:
    """All tries of one attack."""

    attack: str
    attempts: list[Attempt] = field(default_factory=list)
    not_run: str = ""
    """Why the attack was not made here; it then held nothing."""

    @contextmanager
    def attempt(self, what: str) -> Iterator[Attempt]:
        one = Attempt(what)
        self.attempts.append(one)
        try:
            yield one
        except Hang:
            one.fail("hangs", "did not end in its time")

    @property
    def held(self) -> int:
        return sum(not one.failures for one in self.attempts)

    @property
    def counts(self) -> Counter[str]:
        return Counter(kind for one in self.attempts for kind in {kind for kind, _ in one.failures})

    def row(self) -> list[str]:
        if self.not_run:
            return [self.attack, f"not run: {self.not_run}", *[""] * (len(KINDS) + 1)]
        return [self.attack, str(len(self.attempts)), str(self.held), *(str(self.counts[kind]) for kind in KINDS)]


def table(tallies: Sequence[Tally]) -> str:
    """One table of all attacks, in Markdown."""
    counted = [one for one in tallies if not one.not_run]
    total = ["all", str(sum(len(one.attempts) for one in counted)), str(sum(one.held for one in counted))]
    total += [str(sum(one.counts[kind] for one in counted)) for kind in KINDS]
    rows = [["attack", "tries", "held", *KINDS], *(one.row() for one in tallies), total]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    rule = "|:" + "|-".join(("-" * (width + 1) + ":")[1 if place == 0 else 0 :] for place, width in enumerate(widths))
    return "\n".join([lines[0], rule + "|", *lines[1:]])


def failures(tallies: Sequence[Tally], most: int = 12) -> str:
    """The failures in words, so many of each attack at most."""
    lines = []
    for tally in tallies:
        failed = [one for one in tally.attempts if one.failures]
        for one in failed[:most]:
            lines += [f"{tally.attack}: {one.what}", *(f"    {kind}: {why}" for kind, why in one.failures)]
        if len(failed) > most:
            lines.append(f"{tally.attack}: {len(failed) - most} more")
    return "\n".join(lines)
