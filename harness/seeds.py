"""Randomness comes from identity: one seed per purpose, derived from the trial's seed and a name.

Two methods compared under one seed therefore see the same data order and initial weights, and a trial
gives the same result whatever ran before it. No module of the harness draws from a global rng.
"""

from __future__ import annotations

import hashlib
import random


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the purpose that `names` describe."""
    text = "\x1f".join(str(part) for part in (seed, *names))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def make_rng(seed: int, *names: str | int) -> random.Random:
    """A separate rng for the purpose that `names` describe."""
    return random.Random(derive(seed, *names))
