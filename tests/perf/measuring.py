"""Two ways to do the same, measured side by side: each in a process of its own, in turns, one at a time.

What else the machine does then falls on both, and a ratio of turns that follow each other says more than
any time. A way is a function of `tests.perf.sides` that prepares and gives what one turn does.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

SIDE = "import sys; from tests.perf.sides import serve; serve(sys.argv[1:])"


@dataclass(frozen=True)
class Row:
    """One line of the table: times of ours and of what it is compared with, in seconds, by turn."""

    what: str
    ours: Sequence[float]
    baseline: Sequence[float]
    """Nothing where there is only a limit."""
    wanted: str
    """The ratio, or the seconds, that should be reached: "≥ 2.2", "≤ 1.03", "≤ 6 s"."""
    against: str = ""
    scale: float = 1.0
    """How much more the baseline has to do than was measured, for what is extrapolated from a sample."""
    inverse: bool = False
    """Whether the ratio is ours over the baseline's: a cost, which should be small."""

    @property
    def ratios(self) -> list[float]:
        """By turn; the seconds themselves where there is only a limit."""
        if not self.baseline:
            return list(self.ours)
        pairs = zip(self.ours, self.baseline, strict=True)
        return [own / (self.scale * other) if self.inverse else self.scale * other / own for own, other in pairs]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    @property
    def reached(self) -> bool:
        sign, limit = self.wanted.split()[:2]
        return self.ratio >= float(limit) if sign == "≥" else self.ratio <= float(limit)


class Side:
    """One way, in its process."""

    def __init__(self, *name: str, environment: dict[str, str] | None = None) -> None:
        settings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **(environment or {})}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SIDE, *name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=settings
        )
        self.name = " ".join(name)
        self.memory = 0
        """Peak resident memory in bytes, known once it is closed."""
        self._answer()

    def turn(self) -> float:
        """Seconds that one turn took."""
        self.begin()
        return self.end()

    def begin(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> float:
        return float(self._answer())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self.memory = int(self._answer())
        self._process.wait()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with {self._process.wait()}")
        return line


def in_turns(sides: Sequence[Side], turns: int) -> list[list[float]]:
    """Each side's times, a turn of each after the other; the first of each only warms up."""
    for side in sides:
        side.turn()
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(turns):
        for side, own in zip(sides, times, strict=True):
            own.append(side.turn())
    for side in sides:
        side.close()
    return times


def together(sides: Sequence[Side]) -> float:
    """Seconds until all of them have done a turn at the same time."""
    begin = time.perf_counter()
    for side in sides:
        side.begin()
    for side in sides:
        side.end()
    return time.perf_counter() - begin


def shown(seconds: Sequence[float]) -> str:
    middle = statistics.median(seconds)
    unit, factor = next(((u, f) for u, f in (("s", 1.0), ("ms", 1e3)) if middle * f >= 1), ("µs", 1e6))
    return f"{middle * factor:.3g} {unit}" if middle < 1000 else f"{middle:,.0f} s"


def table(rows: Sequence[Row]) -> str:
    """Markdown: medians, the median ratio, and the least and greatest of the ratios."""
    lines = ["| what | ours | baseline | ratio | spread | wanted |", "|:--|--:|--:|--:|:-:|:-:|"]
    for row in rows:
        baseline = shown([row.scale * seconds for seconds in row.baseline]) if row.baseline else ""
        ratio = f"{row.ratio:.3g}" if row.baseline else ""
        ratios = row.ratios
        spread = f"{min(ratios):.2f} – {max(ratios):.2f}" if len(ratios) > 1 else ""
        mark = "✓" if row.reached else "✗"
        what = f"{row.what}, against {row.against}" if row.against else row.what
        lines.append(f"| {what} | {shown(row.ours)} | {baseline} | {ratio} | {spread} | {row.wanted} {mark} |")
    return "\n".join(lines)
