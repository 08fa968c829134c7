"""What `run` shows while trials run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from harness.execution.executors.executor import Answered

if TYPE_CHECKING:
    from rich.table import Table


def duration(seconds: float) -> str:
    """Format a duration for readers: "0.4 s", "12 s", "3 min 20 s", "2 h 05 min"."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


@dataclass
class Running:
    """Latest known progress of a running trial."""

    label: str
    began: float = field(default_factory=time.monotonic)
    stage: str = "starting"
    step: int = 0
    steps: int = 0
    loss: float | None = None
    tau: float | None = None

    def take(self, report: Mapping[str, Any]) -> None:
        """Update from a progress report of the trial's process."""
        self.stage = {"start": "starting", "epoch": "epoch", "rank": "ranking"}.get(report["event"], report["event"])
        self.step, self.steps = report.get("step") or 0, report.get("steps") or 0
        self.loss = report.get("loss") if report.get("loss") is not None else self.loss
        self.tau = report.get("tau") if report.get("tau") is not None else self.tau

    @property
    def left(self) -> float | None:
        """Estimated seconds until the end of this stage, at the average speed so far."""
        if not self.step or self.stage != "epoch":
            return None
        return (time.monotonic() - self.began) * (self.steps - self.step) / self.step


@dataclass
class Display:
    """Counts trials and shows them on `console`. A context manager."""

    total: int
    """Number of trials to run now."""
    console: Console = field(default_factory=lambda: Console(highlight=False))
    running: dict[int, Running] = field(default_factory=dict)
    ended: dict[str, int] = field(
        default_factory=lambda: {Answered.DONE: 0, Answered.FAILED: 0, Answered.INTERRUPTED: 0}
    )
    stopping: bool = False

    def __enter__(self) -> Display:
        self._live = None
        if self.console.is_terminal:
            from rich.live import Live

            self._live = Live(get_renderable=self.table, console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, line: str) -> None:
        """Print a line that stays on the screen."""
        self.console.print(line, markup=False, soft_wrap=True)

    def started(self, number: int, label: str) -> None:
        self.running[number] = Running(label)
        if not self._live:
            self.say(f"{label}: started")

    def progress(self, number: int, report: Mapping[str, Any]) -> None:
        self.running[number].take(report)

    def finished(self, number: int, answer: Mapping[str, Any]) -> None:
        trial = self.running.pop(number, None) or Running("?")
        if answer["status"] not in self.ended:  # another process has it: the trial is queued again
            return
        self.ended[answer["status"]] += 1
        so_far = f"[{sum(self.ended.values())}/{self.total}]"
        news = answer["error"] if answer["status"] == Answered.FAILED else _outcome(answer)
        took = duration(time.monotonic() - trial.began)
        self.say(f"{so_far} {trial.label}: {answer['status']} after {took}" + (f", {news}" if news else ""))

    def elsewhere(self, label: str) -> None:
        """Count a trial that another process has done meanwhile."""
        self.ended[Answered.DONE] += 1
        self.say(f"[{sum(self.ended.values())}/{self.total}] {label}: done by another process")

    def table(self) -> Table:
        """The live table: running trials, and below them the counts."""
        from rich.table import Table

        waiting = self.total - sum(self.ended.values()) - len(self.running)
        done, failed = self.ended[Answered.DONE], self.ended[Answered.FAILED]
        counts = f"{done} done, {len(self.running)} running, {waiting} waiting, {failed} failed"
        table = Table(box=None, caption=counts + (", stopping…" if self.stopping else ""), caption_justify="left")
        for heading in ("trial", "stage", "step", "loss", "τ", "time", "left"):
            table.add_column(heading, justify="left" if heading in ("trial", "stage") else "right")
        for trial in list(self.running.values()):
            table.add_row(
                trial.label,
                trial.stage,
                f"{trial.step}/{trial.steps}" if trial.steps else "",
                "" if trial.loss is None else f"{trial.loss:.3f}",
                "" if trial.tau is None else f"{trial.tau:.3f}",
                duration(time.monotonic() - trial.began),
                "" if trial.left is None else duration(trial.left),
            )
        return table


def _outcome(answer: Mapping[str, Any]) -> str:
    """The result in a few words."""
    result = answer.get("result") or {}
    if result.get("diverged"):
        return "training diverged"
    tau = result.get("kendall_tau")
    return "" if tau is None else f"τ {tau:.3f}"
