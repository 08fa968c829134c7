"""Global rngs seeded from identity, for code that draws from them: transforms of libraries, networks with drop-path."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch

from harness.seeds import derive


def seed_globals(seed: int) -> None:
    """Seed the global rngs at a trial's start, so that components that use them are reproducible."""
    random.seed(derive(seed, "random"))
    np.random.seed(derive(seed, "numpy") % 2**32)
    torch.manual_seed(derive(seed, "torch"))


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Context in which the global rngs of torch, numpy and `random` start from that seed; then they are as before."""
    where = torch.device(device)
    python, array = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[where] if where.type == "cuda" else []):
        try:
            torch.default_generator.manual_seed(seed)
            if where.type == "cuda":
                torch.cuda.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed & 0xFFFFFFFF)
            yield
        finally:
            random.setstate(python)
            np.random.set_state(array)


def step_randomness(
    network: torch.nn.Module, seed: int, device: torch.device | str
) -> Callable[[int], AbstractContextManager[None]]:
    """For each step, the context in which the network is trained: seeded from identity if the network is `stochastic`.

    A module whose forward pass draws random numbers has the attribute `stochastic = True`. Step k of its network then
    draws from global rngs that are a function of seed and step, in a resumed run too.
    """
    if any(getattr(module, "stochastic", False) for module in network.modules()):
        return lambda step: seeded(derive(seed, "network", step), device)
    nothing = nullcontext()
    return lambda step: nothing
