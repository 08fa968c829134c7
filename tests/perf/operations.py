"""Operations, kernels and waits per training step and per ranking batch at paper size, counted on the emulated device.

`python -m tests.perf --only operations` prints the table. Counts do not depend on the machine. Kernels are an estimate:
operations that torch runs on CUDA by several kernels count with that number.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from harness.components.preset import get_preset
from harness.components.registries import METHODS
from harness.components.space import Architecture
from harness.training import emulated_device
from harness.training.workload import Size, Workload, configuration
from spaces.nasbench201.cell import EDGES, POOL, SKIP, live_edges

SMALL = {
    "nasbench201": Size(2, 8, 2),
    "darts": Size(2, 8, 2),
    "mobilenet": Size(2, 32, 2),
    "autoformer": Size(2, 32, 2),
}
"""Few and small images, so that counting takes seconds: counts do not depend on them."""

KERNELS = {
    "convolution with bias": 2,
    "convolution_backward": 2,
    "convolution_backward with bias": 3,
    "native_batch_norm_backward": 2,
    "native_batch_norm": 2,
    "nll_loss_backward": 2,
}
"""CUDA kernels of operations that need several, without the splitting of long foreach lists."""


@dataclass(frozen=True)
class Counted:
    """Means over steps, or over ranking batches."""

    operations: float
    kernels: float
    waits: float


def counted(make: Callable[..., Any], times: int, before: Callable[[], Any] = lambda: None) -> Counted:
    """What `make` launches, on average; what `before` launches each time does not count."""
    total: Counter[str] = Counter()
    waits = 0
    for _ in range(times):
        given = before()
        emulated_device.operations.clear()
        emulated_device.waits.clear()
        make(*([] if given is None else [given]))
        total.update(emulated_device.operations)
        waits += emulated_device.waits.total()
    kernels = sum(KERNELS.get(name, 1) * count for name, count in total.items())
    return Counted(total.total() / times, kernels / times, waits / times)


def of_step(space: str, method: str, times: int, **settings: Any) -> tuple[Counted, Counted]:
    """Of a training step, and of a ranking batch."""
    with emulated_device.emulated():
        chosen = {"method.name": method, **settings}
        work = Workload(configuration(get_preset("paper", space), chosen), emulated_device.NAME, SMALL[space])
        for _ in range(2):  # the first steps make momenta
            work.step()
        steps = counted(work.step, times, work.batch)
        work.rank()
        return steps, counted(work.rank, 3)


CELLS = 15
"""Cells of a network of NAS-Bench-201 at paper size."""


def of_cell(path: Architecture) -> int:
    """Operations of one cell of a path in a step, counted by hand: what the kernels make, and sums of values and of
    gradients. A node is activated once and pooled once, and every further use of a value adds a gradient."""
    terms, uses = Counter[int](), Counter[tuple[str, int]]()
    convolutions = 0
    for edge in live_edges(path):
        target, source = EDGES[edge]
        terms[target] += 1
        made = {POOL: "pooled", SKIP: "plain"}.get(path[edge], "active")
        uses[made, source] += 1
        convolutions += made == "active"
    derived = [source for made, source in uses if made != "plain"]
    for source in derived:
        uses["plain", source] += 1
    sums = sum(count - 1 for count in (*terms.values(), *uses.values()))
    return 4 * convolutions + 2 * len(derived) + sums  # each with its gradient; a convolution and its normalisation


def beyond_cells(method: str, times: int) -> list[int]:
    """By training step of NAS-Bench-201, the operations that are not its cells', of steps whose paths all train."""
    found: list[int] = []
    with emulated_device.emulated():
        chosen = configuration(get_preset("paper", "nasbench201"), {"method.name": method})
        work = Workload(chosen, emulated_device.NAME, SMALL["nasbench201"])
        work.step()  # has no momentum yet
        while len(found) < times:
            batch = work.batch()
            emulated_device.operations.clear()
            work.step(batch)
            paths = work.training.trained
            if all(map(live_edges, paths)):
                made = emulated_device.operations.total() - emulated_device.operations["clone"]  # new momenta
                found.append(made - CELLS * sum(map(of_cell, paths)))
    return found


def of_plain_code(times: int) -> tuple[Counted, Counted]:
    """Of a SPOS step of NAS-Bench-201 as most research code writes it, on the same device."""
    from tests.perf.baseline import PlainSupernet

    with emulated_device.emulated():
        network = PlainSupernet(16, 5, 10, 3).to(emulated_device.NAME)
        optimiser = torch.optim.SGD(network.parameters(), 0.025, 0.9, weight_decay=5e-4, nesterov=True, foreach=True)
        images = torch.randn(2, 3, 8, 8).to(emulated_device.NAME)
        labels = torch.zeros(2, dtype=torch.long).to(emulated_device.NAME)
        rng = random.Random(0)

        def path() -> tuple[int, ...]:
            return tuple(rng.randrange(5) for _ in range(6))

        def step() -> None:
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(network(images, path()), labels).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimiser.step()

        def rank() -> None:
            with torch.no_grad():
                (network(images, path()).argmax(1) == labels).sum().item()

        step()
        return counted(step, times), counted(rank, times)


def rows() -> Iterator[tuple[str, Counted, Counted]]:
    yield "NAS-Bench-201, plain PyTorch code, one path", *of_plain_code(20)
    for method in (name for name in METHODS.names() if name not in ("autoformer", "related")):
        yield f"NAS-Bench-201, {method}", *of_step("nasbench201", method, 20)
    calr_ms = {"schedule.name": "calr", "clusters.name": "operation"}
    yield "NAS-Bench-201, spos, CaLR and MS", *of_step("nasbench201", "spos", 20, **calr_ms)
    for space in ("mobilenet", "darts", "autoformer"):
        yield f"{space}, spos", *of_step(space, "spos", 10)


def operations_table() -> str:
    """Markdown."""
    lines = [
        "| per step at paper size | operations | kernels | waits | per ranking batch: operations | kernels | waits |"
    ]
    lines.append("|:--|--:|--:|--:|--:|--:|--:|")
    for name, step, rank in rows():
        numbers = [f"{one.operations:,.0f} | {one.kernels:,.0f} | {one.waits:.3g}" for one in (step, rank)]
        lines.append(f"| {name} | {numbers[0]} | {numbers[1]} |")
    return "\n".join(lines)
