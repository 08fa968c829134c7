"""Randomness comes from identity: one seed per purpose, derived from the trial's seed and a name.

Two methods compared under one seed therefore see the same data order and initial weights, and a trial
gives the same result whatever ran before it. No module of the harness draws from a global rng.
"""

from __future__ import annotations

import hashlib
import random
from typing import Any


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the purpose that `names` describe."""
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def make_rng(seed: int, *names: str | int) -> random.Random:
    """A separate rng for the purpose that `names` describe."""
    return random.Random(derive(seed, *names))


class InTurn(random.Random):
    """An rng whose choices go round with the seed: as many seeds as there are choices have all of them, each once."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._turn = seed

    def choice(self, seq: Any) -> Any:
        return seq[self._turn % len(seq)]

    def sample(self, population: Any, k: int, *, counts: Any = None) -> list[Any]:
        start = self._turn % len(population)
        return [*population[start:], *population[:start]][:k]
