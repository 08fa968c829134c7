"""Statistics of batch normalisation, computed for one architecture before it is evaluated.

Running statistics that a supernet tracks in training are means over all the paths that were trained. They fit none of
them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from harness.components.space import Architecture
from harness.components.supernet import Calibrated, offered
from harness.training.parts import undivided


@contextlib.contextmanager
def calibrated(network: torch.nn.Module, architecture: Architecture, batches: Sequence[torch.Tensor]) -> Iterator[None]:
    """Context in which the architecture has statistics of these images; nothing happens without images.

    A supernet may do this itself (`harness.components.supernet.Calibrated`). Raises `InvalidConfiguration` for one that
    does not, and tracks no statistics either.
    """
    if not len(batches):
        yield
        return
    norms = [one for one in network.modules() if isinstance(one, _BatchNorm) and one.running_mean is not None]
    own: contextlib.AbstractContextManager[Any]
    if isinstance(network, Calibrated) or not norms:
        own = offered(network, Calibrated, "rank.calibration").calibrated(architecture, batches)
    else:
        own = _with_statistics(network, norms, architecture, batches)
    with undivided(), own:
        yield


@contextlib.contextmanager
def _with_statistics(
    network: torch.nn.Module, norms: Sequence[_BatchNorm], architecture: Architecture, batches: Sequence[torch.Tensor]
) -> Iterator[None]:
    """Reset all statistics, and take the mean over the batches; afterwards all is as before.

    So they depend on the weights, the architecture and the images alone, not on what was evaluated before.
    """
    before = [({name: tensor.clone() for name, tensor in one.named_buffers()}, one.momentum) for one in norms]
    try:
        for one in norms:
            one.reset_running_stats()
            one.momentum = None  # a plain mean over the batches
            one.train()
        with torch.no_grad():
            for images in batches:
                network(images, architecture)
        for one in norms:
            one.eval()
        yield
    finally:
        for one, (buffers, momentum) in zip(norms, before, strict=True):
            one.eval()
            one.momentum = momentum
            for name, tensor in buffers.items():
                getattr(one, name).copy_(tensor)
