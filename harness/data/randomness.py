"""Global rngs seeded from identity, for code that draws from them: transforms of libraries, networks with drop-path."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch

from harness.data import devices
from harness.seeds import derive


def seed_globals(seed: int) -> None:
    """Seed the global rngs at a trial's start, so that components that use them are reproducible."""
    random.seed(derive(seed, "random"))
    np.random.seed(derive(seed, "numpy") % 2**32)
    torch.manual_seed(derive(seed, "torch"))


@contextmanager
def seeded(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Context in which the global rngs of torch, numpy and `random` start from that seed; then they are as before."""
    with preserved(device) as reseed:
        reseed(seed)
        yield


@contextmanager
def preserved(device: torch.device | str = "cpu") -> Iterator[Callable[[int], None]]:
    """Context after which the global rngs are as before; yields a function that seeds them.

    Saving and restoring numpy's takes longer than seeding all of them: for many samples, do it once.
    """
    where = torch.device(device)
    python, array, cpu = random.getstate(), np.random.get_state(legacy=False), torch.default_generator.get_state()
    gpu = devices.module(where).get_rng_state(where) if devices.accelerated(where) else None

    def reseed(seed: int) -> None:
        torch.default_generator.manual_seed(seed)
        if gpu is not None:
            with devices.module(where).device(where):
                devices.module(where).manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)

    try:
        yield reseed
    finally:
        torch.default_generator.set_state(cpu)
        if gpu is not None:
            devices.module(where).set_rng_state(gpu, where)
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
