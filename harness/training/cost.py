"""What a trial cost: wall time, passes, images, peak memory. Measured, never part of a result.

A run that was resumed goes on counting where its checkpoint stood; what was done between that and the
interruption, and is done again, counts once.
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

from harness.training.allocator import return_freed_memory


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
    """Images that these passes saw."""
    evaluations: int = 0
    """Architectures evaluated."""
    started: float = field(default_factory=time.perf_counter)
    resident: int = field(default_factory=lambda: _in_use())
    """Bytes of the process that are not the trial's."""
    stages: dict[str, float] = field(default_factory=dict)
    """Wall seconds by stage."""
    resumed: int = 0
    """How many times the trial went on from a checkpoint."""
    training_memory: int = 0
    """Bytes at the peak of the training steps alone, without what observers hold or do between them."""
    _earlier_seconds: float = 0.0
    _earlier_peak: int = 0

    def __post_init__(self) -> None:
        self._reset_peak()

    def _reset_peak(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        else:
            _forget_peak()

    def stage(self, name: str) -> None:
        """Everything since the last call belongs to stage `name`."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.stages[name] = self.stages.get(name, 0.0) + self.seconds - sum(self.stages.values())

    def measured_in_steps(self, seconds: float) -> None:
        """So many seconds of the training stage, up to now, were spent on measuring."""
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
        """Since the peak was last reset."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return _peak() - self.resident

    def steps_done(self, held_by_observers: int) -> None:
        """Some training steps were made since the start or an observation: their peak counts as that of training."""
        self.training_memory = max(self.training_memory, self._present_peak() - held_by_observers)

    @contextlib.contextmanager
    def observation(self) -> Iterator[None]:
        """What is needed within, or stays afterwards (an imported library), is no memory of training."""
        before = self._in_use()
        yield
        self._earlier_peak = self.peak_memory
        self.resident += max(0, self._in_use() - before)
        self._reset_peak()

    def _in_use(self) -> int:
        return _in_use() if self.device.type == "cpu" else 0

    def state(self) -> dict[str, Any]:
        """What was counted so far, to be stored."""
        return {
            "passes": self.passes,
            "images": self.images,
            "evaluations": self.evaluations,
            "seconds": self.seconds,
            "stages": dict(self.stages),
            "peak_memory": self.peak_memory,
            "training_memory": self.training_memory,
            "resumed": self.resumed,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on counting from a stored state. Whatever was allocated to load it is forgotten."""
        self.passes, self.images, self.evaluations = state["passes"], state["images"], state["evaluations"]
        self.stages = dict(state["stages"])
        self.resumed = state["resumed"] + 1
        self._earlier_seconds, self._earlier_peak = state["seconds"], state["peak_memory"]
        self.training_memory = state["training_memory"]
        if self.device.type == "cpu":
            return_freed_memory()
        self._reset_peak()

    def json(self) -> dict[str, object]:
        return {
            "wall_seconds": self.seconds,
            "stage_seconds": dict(self.stages),
            "passes": self.passes,
            "images": self.images,
            "evaluations": self.evaluations,
            "peak_memory_bytes": self.peak_memory,
            "training_memory_bytes": self.training_memory,
            "memory_kind": "allocated on device" if self.device.type == "cuda" else "growth of the resident set",
            "device": str(self.device),
            "resumed": self.resumed,
        }


def _in_use() -> int:
    """The resident set without what is free and only kept: that would be taken again unseen."""
    return_freed_memory()
    return _status("VmRSS")


def _status(field_name: str) -> int:
    """A field of this process's status, in bytes; 0 where the system has none."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field_name + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _forget_peak() -> None:
    """Start the resident set's high-water mark anew, where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    high = _status("VmHWM")
    if high:
        return high
    # Kilobytes on Linux, bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
