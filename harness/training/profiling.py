"""Profile of a trial: a breakdown of its time by phase as text, and a trace of a few steps for torch's viewers.

The code marks where a phase begins and ends (`with phase("forward"):`); outside of `profiled` this does nothing and
costs next to nothing. Results are the same bytes either way. Time in an inner phase counts for the inner phase only,
so the parts add up to the whole.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch

from harness.data import devices

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

SAMPLING = "sampling"
"""Choosing paths and data, with the passes that are made only for it."""

PHASES = ("data", SAMPLING, "forward", "backward", "update", "evaluate", "logging")

OTHER = "other"
"""Time outside of all phases: building networks, planning paths, judging, Sacred itself."""

_ITSELF = "profiling"
"""The profiler's own time; not part of the breakdown."""

SKIPPED, TRACED = 5, 10
"""How many training steps pass before the trace begins, and how many it shows."""

BREAKDOWN, TRACE = "breakdown.txt", "trace.json.gz"

_active: list[_Profile] = []
"""The profile of this process's trial, if it is profiled."""
_NOTHING = contextlib.nullcontext()


def phase(name: str) -> contextlib.AbstractContextManager[None]:
    """Context whose time counts for that phase (one of `PHASES`), if this process's trial is profiled."""
    return _active[0].within(name) if _active else _NOTHING


def during(name: str) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Decorator: the whole function counts for one phase."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def within(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
            with phase(name):
                return function(*arguments, **options)

        return within

    return decorate


def step_done() -> None:
    """Call after each training step: the trace counts them."""
    if _active:
        _active[0].step()


class Phases:
    """Seconds and calls by phase, without the time of inner phases."""

    def __init__(self, synchronise: Callable[[], object] = lambda: None) -> None:
        self.seconds = dict.fromkeys((*PHASES, OTHER, _ITSELF), 0.0)
        self.calls = dict.fromkeys((*PHASES, _ITSELF), 0)
        self._synchronise = synchronise
        self._open: list[str] = []
        self._since = time.perf_counter()

    def enter(self, phase: str) -> None:
        self._book()
        if self._open[-1:] == [SAMPLING]:  # the passes that choose are the cost of choosing
            phase = SAMPLING
        self.calls[phase] += 1
        self._open.append(phase)

    def leave(self) -> None:
        self._book()
        self._open.pop()

    def _book(self) -> None:
        self._synchronise()  # the device may still be working for the phase that ends
        now = time.perf_counter()
        self.seconds[self._open[-1] if self._open else OTHER] += now - self._since
        self._since = now

    def text(self, title: str) -> str:
        self._book()
        seconds_of = {phase: seconds for phase, seconds in self.seconds.items() if phase != _ITSELF}
        whole = sum(seconds_of.values())
        lines = [title, "", f"{'phase':<10}{'seconds':>10}{'share':>9}{'calls':>9}{'ms per call':>12}"]
        for phase, seconds in seconds_of.items():
            calls = self.calls.get(phase, 0)
            each = f"{seconds / calls * 1e3:.3f}" if calls else ""
            lines.append(f"{phase:<10}{seconds:>10.3f}{seconds / whole:>9.1%}{calls or '':>9}{each:>12}")
        return "\n".join([*lines, f"{'all':<10}{whole:>10.3f}"])


@contextlib.contextmanager
def profiled(folder: Path, title: str, device: torch.device) -> Iterator[None]:
    """Context that profiles this process's trial; the profile is written to the folder at the end, even on an error."""
    phases = Phases(functools.partial(devices.wait, device))
    folder.mkdir(parents=True, exist_ok=True)
    tracer = _Tracer(folder / TRACE, device)
    _active.append(_Profile(phases, tracer))
    try:
        yield
    finally:
        _active.clear()
        tracer.stop()
        (folder / BREAKDOWN).write_text(f"{phases.text(title)}\n\n{tracer.text()}\n")


@dataclass(frozen=True)
class _Profile:
    phases: Phases
    tracer: _Tracer

    @contextlib.contextmanager
    def within(self, name: str) -> Iterator[None]:
        self.phases.enter(name)
        try:
            with torch.profiler.record_function(f"harness: {name}"):
                yield
        finally:
            self.phases.leave()

    def step(self) -> None:
        self.phases.enter(_ITSELF)
        self.tracer.step()
        self.phases.leave()


class _Tracer:
    """A trace of some training steps."""

    def __init__(self, path: Path, device: torch.device) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device.type == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self.path = path
        self._table = ""
        self._steps = 0
        self._profiler: Any = torch.profiler.profile(activities=activities)

    def step(self) -> None:
        """Called after each training step."""
        self._steps += 1
        if self._steps == SKIPPED:
            self._profiler.start()
        elif self._steps == SKIPPED + TRACED:
            self.stop()

    def stop(self) -> None:
        if self._profiler is None or self._steps < SKIPPED:
            return
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        profiler.export_chrome_trace(str(self.path))
        steps = min(self._steps - SKIPPED, TRACED)
        table = profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=25, max_name_column_width=45)
        self._table = f"Operations of {steps} training steps, the longest first ({self.path.name} shows each):\n{table}"

    def text(self) -> str:
        return self._table or f"fewer than {SKIPPED} training steps: no trace"
