"""Measures the latency of a space's pieces on the device at hand."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from harness.components.latency import Measurable, Piece
from harness.components.space import Space
from harness.data import devices
from harness.data.latency import LatencyTable
from harness.environment import cpu_model
from harness.errors import InvalidConfiguration

WARM_UP = 2
"""Runs of every piece that are not counted."""


def measure(
    space: Space,
    settings: Any,
    device: torch.device,
    batch: int = 1,
    repeats: int = 20,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> LatencyTable:
    """The median times of all pieces, for `batch` images at once.

    All pieces are measured once per round, so that a disturbance of the machine hits all of them alike.
    """
    if not isinstance(space, Measurable):
        raise InvalidConfiguration(
            f"the latency of {space.name} cannot be measured: its class lacks the methods pieces and "
            "latency_settings (Measurable of harness.components.latency)"
        )
    pieces = space.pieces(settings)
    places: list[Piece] = [*pieces.shared, *(one for own in pieces.layers for one in own if one is not None)]
    runs = [_ready(piece, batch, device) for piece in places]
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(WARM_UP + repeats):
        for run, own in zip(runs, times, strict=True):
            begin = time.perf_counter()
            run()
            if turn >= WARM_UP:
                own.append(time.perf_counter() - begin)
        report(turn + 1, WARM_UP + repeats)
    medians = iter([round(1e6 * statistics.median(own)) for own in times])
    shared = sum(next(medians) for _ in pieces.shared)
    layers = tuple(tuple(0 if one is None else next(medians) for one in own) for own in pieces.layers)
    measured = {
        "device": devices.module(device).get_device_name(device) if devices.accelerated(device) else cpu_model(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "batch": batch,
        "repeats": repeats,
    }
    return LatencyTable(space.name, dict(space.latency_settings(settings)), measured, shared, layers)


def _ready(piece: Piece, batch: int, device: torch.device) -> Callable[[], None]:
    """A function that runs the piece once and waits until it is done."""
    network = devices.placed(piece.network, device).eval()
    images = devices.laid_out(torch.randn(batch, *piece.shape, device=device))

    def run() -> None:
        with torch.inference_mode():
            network(images)
        devices.wait(device)

    return run
