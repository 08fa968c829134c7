"""How costs grow: step and ranking over width, depth and clusters, and a question over the number of stored runs."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from harness.data.loader import DeviceLoader
from harness.study.configuration import RunConfig
from harness.training.allocator import keep_freed_memory
from harness.training.stages.train import Supernets, build_supernets, prepare
from harness.training.supernet import SupernetTraining
from tests.perf import sides
from tests.perf.stores import ask
from tests.perf.synthetic import fill

WIDTHS, DEPTHS = (2, 4, 8, 16), (1, 2, 3, 5)
EDGES = (0, 1, 2, 3, 4)
"""1, 5, 25, 125 and 625 clusters."""
RUNS = (100, 400, 1600)
PATHS = 12


def growth(plot: Path) -> str:
    """Measure, draw, and give the numbers as Markdown."""
    torch.set_num_threads(1)
    keep_freed_memory()
    panels = {
        "channels of the first stage (depth 1)": [(width, *_costs(width, 1)) for width in WIDTHS],
        "cells a stage (8 channels)": [(depth, *_costs(8, depth)) for depth in DEPTHS],
        "momentum clusters (8 channels, depth 1)": [(5**edges, *_costs(8, 1, edges)) for edges in EDGES],
    }
    runs = [(number, _question(number)) for number in RUNS]
    _draw(plot, panels, runs)
    lines = ["| over | at | step | evaluation of 256 images |", "|:--|--:|--:|--:|"]
    for name, points in panels.items():
        lines += [f"| {name} | {at} | {step * 1e3:.1f} ms | {rank * 1e3:.1f} ms |" for at, step, rank in points]
    lines += ["", "| stored runs | `results.runs()` |", "|--:|--:|"]
    lines += [f"| {number:,} | {seconds:.2f} s |" for number, seconds in runs]
    return "\n".join(lines)


def _costs(width: int, depth: int, edges: int = 0) -> tuple[float, float]:
    """Seconds of a step and of an evaluation, at 16×16."""
    clusters = {"name": "operation", "edges": edges} if edges else {"name": "none"}
    network = {"width": width, "depth": depth}
    config = RunConfig.from_json({"network": network, "clusters": clusters, "train": {"epochs": 1000}})
    dataset = sides.images("small")
    batches = DeviceLoader(dataset.train, dataset, sides.BATCH, 0)
    supernets = build_supernets(config, dataset)
    _, (training,) = prepare(config, supernets, batches.steps_per_epoch)
    return _step(training, batches), _evaluation(supernets)


def _step(training: SupernetTraining, batches: DeviceLoader) -> float:
    drawn = sides.paths()
    chosen = [next(drawn) for _ in range(PATHS)]

    def steps() -> None:
        for number, path in enumerate(chosen):
            training.descend(batches.batch(number), [path], number)

    return _best(steps) / PATHS


def _evaluation(supernets: Supernets) -> float:
    drawn = sides.paths()
    chosen = sorted({supernets.space.function_class(next(drawn)) for _ in range(PATHS)})
    dataset = sides.images("small")
    return _best(lambda: sides.ranked(supernets, chosen, dataset)) / len(chosen)


def _best(work: Callable[[], object], turns: int = 4) -> float:
    work()
    times = []
    for _ in range(turns):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def _question(number: int) -> float:
    code = "from harness import results; print(results.runs().shape)"
    with tempfile.TemporaryDirectory() as folder:
        fill(Path(folder), number)
        return statistics.median(ask(["-c", code], folder).wall for _ in range(3))


def _draw(plot: Path, panels: dict[str, list[tuple[int, float, float]]], runs: Sequence[tuple[int, float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 4, figsize=(15, 3.4), constrained_layout=True)
    for axis, (name, points) in zip(axes, panels.items(), strict=False):
        at, steps, ranks = zip(*points, strict=True)
        axis.plot(at, [1e3 * one for one in steps], "o-", label="training step, batch 64")
        axis.plot(at, [1e3 * one for one in ranks], "s--", label="evaluation, 256 images")
        axis.set_xlabel(name)
        axis.set_ylabel("milliseconds")
        axis.set_ylim(bottom=0)
        if at[-1] / at[0] > 20:
            axis.set_xscale("log")
    axes[0].legend()
    numbers, seconds = zip(*runs, strict=True)
    axes[3].plot(numbers, seconds, "o-")
    axes[3].set_xlabel("stored runs")
    axes[3].set_ylabel("seconds of results.runs()")
    axes[3].set_ylim(bottom=0)
    figure.suptitle("How costs grow (NAS-Bench-201 supernet, 16×16 images, one thread)")
    plot.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(plot)
    pyplot.close(figure)
