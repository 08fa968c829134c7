"""The processes of a trial that train it together. Imported in training processes only.

The first process has the claim, the run directory and the checkpoint, and speaks for all. The others take part in its
computation and write nothing. `run` watches all of them: when one fails or dies, it ends the rest.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.data.randomness import seed_globals
from harness.errors import RanksLost
from harness.study.configuration import RunConfig
from harness.training.memory import memory_explained
from harness.training.precision import fix_arithmetic
from harness.training.ranks import Ranks, join
from harness.work.jobs import GROUP

EXPLAINED_WITHIN = 120.0
"""Seconds in which `run` ends a process that has lost another one of its group."""


@dataclass(frozen=True)
class Group:
    """The place of this process in its group; by default the only one."""

    index: int = 0
    size: int = 1
    meeting: Path | None = None
    """The file by which the processes find each other."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Group:
        """As the executor tells it in the document of a job."""
        told = document.get(GROUP)
        return cls() if told is None else cls(told["index"], told["size"], Path(told["meeting"]))

    @property
    def first(self) -> bool:
        return self.index == 0

    @contextlib.contextmanager
    def computing(self, config: RunConfig, device: str) -> Iterator[Ranks]:
        """Context of the computation of a trial, with all processes of the group: entered when all have come.

        Global rngs are seeded, and settings of torch that change results are fixed.
        """
        seed_globals(config.seed)
        fix_arithmetic((config.retrain or config.train).precision)
        with memory_explained(config, self.size), self._explained():
            ranks = join(self.index, self.size, f"file://{self.meeting}", device)
            yield ranks
            ranks.barrier()  # none leaves while another may still wait for it
            ranks.leave()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """A process that has lost another is not the cause: it waits for its end by `run`, which knows the cause."""
        try:
            yield
        except RanksLost:
            time.sleep(EXPLAINED_WITHIN)
            raise
