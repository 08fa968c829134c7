"""The cost of a trial: wall time, passes, images, peak memory. Measured, never part of a result.

Passes are counted alike for all methods: forward-backward passes of single paths, forward passes without a backward
one (a teacher's), and apart from both the forward passes that only choose paths or data, with their time.

A resumed run continues counting from its checkpoint. Work between the checkpoint and the interruption,
which is repeated, counts once.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from harness.components.method import Step
from harness.data import devices
from harness.training.allocator import return_freed_memory
from harness.training.profiling import SAMPLING, phase
from harness.training.ranks import ALONE, Ranks

COUNTS = (
    "passes",
    "images",
    "forward_passes",
    "forward_images",
    "sampling_passes",
    "sampling_images",
    "sampling_seconds",
    "evaluations",
)
"""What a meter adds up."""


@dataclass
class Sampling:
    """What the choice of paths and data has cost since the last step."""

    passes: int = 0
    images: int = 0
    seconds: float = 0.0
    _open: bool = False

    @contextlib.contextmanager
    def counting(self, device: torch.device, passes: int, images: int) -> Iterator[None]:
        """Context that makes so many passes. Its time counts once, also within another one."""
        self.passes, self.images = self.passes + passes, self.images + images
        if self._open:
            yield
            return
        self._open, started = True, _now(device if passes else None)
        try:
            with phase(SAMPLING):
                yield
        finally:
            self._open = False
            self.seconds += _now(device if passes else None) - started

    def clear(self) -> None:
        self.passes, self.images, self.seconds = 0, 0, 0.0


@dataclass
class Meter:
    """Counts from its creation on.

    Memory is the device's own peak on CUDA; on a CPU it is how far the resident set grew over its size
    at the start, so a trial should run in a fresh process.
    """

    device: torch.device
    passes: int = 0
    """Forward-backward passes of single paths."""
    images: int = 0
    """Images processed by these passes."""
    forward_passes: int = 0
    """Forward passes that training made without a backward one."""
    forward_images: int = 0
    sampling_passes: int = 0
    """Forward passes made only to choose paths or data."""
    sampling_images: int = 0
    sampling_seconds: float = 0.0
    """Seconds spent on choosing paths and data; the stage `train` includes them."""
    evaluations: int = 0
    """Architectures evaluated."""
    started: float = field(default_factory=time.perf_counter)
    resident: int = field(default_factory=lambda: _in_use())
    """Bytes of the process that do not belong to the trial."""
    stages: dict[str, float] = field(default_factory=dict)
    """Wall seconds by stage."""
    resumed: int = 0
    """How many times the trial was resumed from a checkpoint."""
    ranks: int = 1
    """How many processes train together. Those that continue a trained supernet may be fewer, or more."""
    training_memory: int = 0
    """Peak bytes of the training steps alone, without the memory that observers hold, or use between steps."""
    _earlier_seconds: float = 0.0
    _earlier_peak: int = 0

    def __post_init__(self) -> None:
        self._reset_peak()

    def _reset_peak(self) -> None:
        if devices.accelerated(self.device):
            devices.module(self.device).reset_peak_memory_stats(self.device)
        else:
            _forget_peak()

    def count(self, done: Step, sampling: Sampling) -> None:
        """Add what a training step did, and what choosing for it cost; that is then forgotten."""
        self.passes += done.passes
        self.images += done.images
        self.forward_passes += done.forward_passes
        self.forward_images += done.forward_images
        self.sampling_passes += done.sampling_passes
        self.sampling_images += done.sampling_images
        self.count_sampling(sampling)

    def count_sampling(self, sampling: Sampling) -> None:
        """Add what choosing has cost; that is then forgotten."""
        self.sampling_passes += sampling.passes
        self.sampling_images += sampling.images
        self.sampling_seconds += sampling.seconds
        sampling.clear()

    def stage(self, name: str) -> None:
        """Book the time since the last call on stage `name`."""
        devices.wait(self.device)
        self.stages[name] = self.stages.get(name, 0.0) + self.seconds - sum(self.stages.values())

    def measured_in_steps(self, seconds: float) -> None:
        """Move this many seconds from the training stage to `observe`: they were spent on measuring."""
        self.stage("train")
        seconds = min(seconds, self.stages["train"])
        self.stages["train"] -= seconds
        self.stages["observe"] = self.stages.get("observe", 0.0) + seconds

    @property
    def seconds(self) -> float:
        return self._earlier_seconds + time.perf_counter() - self.started

    @property
    def peak_memory(self) -> int:
        """Bytes."""
        return max(self._earlier_peak, self._present_peak())

    def _present_peak(self) -> int:
        """Bytes, since the last reset of the peak."""
        if devices.accelerated(self.device):
            return int(devices.module(self.device).max_memory_allocated(self.device))
        return _peak() - self.resident

    def steps_done(self, held_by_observers: int) -> None:
        """Called after training steps: the peak since the start or the last observation is that of training."""
        self.training_memory = max(self.training_memory, self._present_peak() - held_by_observers)

    @contextlib.contextmanager
    def observation(self) -> Iterator[None]:
        """Context whose memory is not that of training, even if it stays in use (an imported library)."""
        before = self._in_use()
        yield
        self._earlier_peak = self.peak_memory
        self.resident += max(0, self._in_use() - before)
        self._reset_peak()

    def _in_use(self) -> int:
        return _in_use() if self.device.type == "cpu" else 0

    def counts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in COUNTS}

    def state(self) -> dict[str, Any]:
        """The counts so far, to be stored."""
        return {
            **self.counts(),
            "seconds": self.seconds,
            "stages": dict(self.stages),
            "peak_memory": self.peak_memory,
            "training_memory": self.training_memory,
            "resumed": self.resumed,
            "ranks": self.ranks,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue counting from a stored state. Memory allocated to load it does not count."""
        for name in COUNTS:
            setattr(self, name, state[name])
        self.stages = dict(state["stages"])
        self.resumed = state["resumed"] + 1
        self._earlier_seconds, self._earlier_peak = state["seconds"], state["peak_memory"]
        self.training_memory = state["training_memory"]
        self.ranks = state["ranks"]
        if self.device.type == "cpu":
            return_freed_memory()
        self._reset_peak()

    def json(self, ranks: Ranks = ALONE) -> dict[str, object]:
        """The cost of the trial. Memory is the sum over its ranks, and their peaks beside it if there are several."""
        peaks = ranks.gathered(torch.tensor([self.peak_memory])).tolist()
        (training,) = ranks.sums([self.training_memory / ranks.size * self.ranks])
        if self.ranks > ranks.size:  # those that trained with these are gone, and were like them
            peaks *= self.ranks // ranks.size
        return {
            "wall_seconds": self.seconds,
            "stage_seconds": dict(self.stages),
            **self.counts(),
            "peak_memory_bytes": sum(peaks),
            "training_memory_bytes": int(training),
            **({"ranks": len(peaks), "peak_memory_per_rank": peaks} if len(peaks) > 1 else {}),
            "memory_kind": "allocated on device" if devices.accelerated(self.device) else "growth of the resident set",
            "device": str(self.device),
            **({"gpu": devices.name(self.device)} if devices.accelerated(self.device) else {}),
            "resumed": self.resumed,
        }


def _now(device: torch.device | None) -> float:
    """The time in seconds, once the device has done its work."""
    if device is not None:
        devices.wait(device)
    return time.perf_counter()


def _in_use() -> int:
    """The resident set without freed memory that is only kept: reusing that would not show as growth."""
    return_freed_memory()
    return _status("VmRSS")


def _status(field_name: str) -> int:
    """A field of this process's status, in bytes; 0 if the system has none."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field_name + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _forget_peak() -> None:
    """Reset the resident set's high-water mark, if the system supports it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    high = _status("VmHWM")
    if high:
        return high
    # Kilobytes on Linux, bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
