"""Groups of processes that train together, forked from this one; and trainings in float64, to be compared closely."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.components.dataset import DataSet
from harness.components.discovery import component
from harness.components.loader import Batch, Loader
from harness.components.registries import DATASETS
from harness.data.loading import EvaluationBatches, loader_for
from harness.study.configuration import RunConfig
from harness.training import preparation
from harness.training.cost import Meter
from harness.training.ranks import Ranks, join
from harness.training.stages import train as stage
from harness.training.stages.train import Progress, Supernets

LIMIT = 300.0
"""Seconds after which a group is ended: something hangs."""

IMAGES = 37
"""Training images: batches of 16, 16 and 5. The last cannot be divided evenly."""


def in_group(size: int, work: Callable[[Ranks], Any], limit: float = LIMIT) -> list[Any]:
    """What `work` returns in each of so many processes, which form a group. Fails with the traceback of one of them."""
    folder = Path(tempfile.mkdtemp(prefix="ranks"))
    try:
        children = [_forked(index, size, work, folder) for index in range(size)]
        _await(children, folder, limit)
        return [torch.load(folder / f"{index}.pt", weights_only=False) for index in range(size)]
    finally:
        shutil.rmtree(folder)


def _forked(index: int, size: int, work: Callable[[Ranks], Any], folder: Path) -> int:
    if child := os.fork():
        return child
    try:
        torch.set_num_threads(1)
        ranks = join(index, size, f"file://{folder}/meeting", timeout=LIMIT)
        torch.save(work(ranks), folder / f"{index}.pt")
        ranks.barrier()
        ranks.leave()
        os._exit(0)
    except BaseException:
        (folder / f"{index}.txt").write_text(traceback.format_exc())
    finally:
        os._exit(1)


def _await(children: list[int], folder: Path, limit: float) -> None:
    """Wait for all; the failure of one ends the others."""
    until, running, failed = time.monotonic() + limit, set(children), False
    while running and not failed and time.monotonic() < until:
        for child in list(running):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                running.discard(child)
                failed |= status != 0
        time.sleep(0.005)
    if not running and not failed:
        return
    time.sleep(0.2 if failed else 0)  # the others may say more
    for child in running:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    said = "\n".join(file.read_text() for file in sorted(folder.glob("*.txt")))
    raise AssertionError(said or "a process of the group ended or hung without a word")


class Doubled:
    """A loader's batches in float64."""

    def __init__(self, loader: Loader) -> None:
        self.loader, self.steps_per_epoch, self.close = loader, loader.steps_per_epoch, loader.close

    def batch(self, step: int) -> Batch:
        batch = self.loader.batch(step)
        soft = batch.labels.is_floating_point()
        return batch._replace(images=batch.images.double(), labels=batch.labels.double() if soft else batch.labels)


class DoubledBatches:
    """Held-out batches in float64."""

    def __init__(self, *arguments: Any) -> None:
        held = EvaluationBatches(*arguments)
        self.labels, self.images = held.labels, [images.double() for images in held.images]

    def __len__(self) -> int:
        return len(self.labels)


def in_float64() -> None:
    """From now on this process trains supernets in float64. For a forked process only."""
    changed: Any = stage
    changed.compile_if_wanted = lambda network: network.double()
    for module in (stage, preparation):
        module.loader_for = lambda *given, **more: Doubled(loader_for(*given, **more))  # type: ignore[attr-defined]
    preparation.EvaluationBatches = DoubledBatches  # type: ignore[attr-defined, assignment]
    differentiable = component("methods._differentiable").Differentiable
    begin = differentiable.begin

    def begun(self: Any, training: Any) -> None:
        torch.set_default_dtype(torch.double)  # of the architecture parameters
        begin(self, training)
        torch.set_default_dtype(torch.float)

    differentiable.begin = begun


def few(name: str, images: int = IMAGES) -> DataSet:
    """A data set with few training images, and as many to validate."""
    dataset: DataSet = DATASETS.get(name)()
    return replace(dataset, train=dataset.train.head(images), valid=dataset.valid.head(images))


def trained(config: RunConfig, ranks: Ranks, dataset: DataSet | None = None) -> dict[str, torch.Tensor]:
    """The losses of the epochs, and all weights and statistics of the trained supernets, by name."""
    losses: list[float] = []

    def report(progress: Progress) -> None:
        losses.append(progress.loss)

    meter = Meter(torch.device("cpu"))
    supernets = stage.train(config, dataset or few(config.dataset), meter, report, ranks=ranks)
    counts = torch.tensor([meter.passes, meter.images, meter.sampling_images], dtype=torch.double)
    return {"losses": torch.tensor(losses, dtype=torch.double), "counts": counts} | weights(supernets)


def weights(supernets: Supernets) -> dict[str, torch.Tensor]:
    return {
        f"{number} {name}": tensor.detach().double().clone()
        for number, network in enumerate(supernets.networks)
        for name, tensor in network.state_dict().items()
    }


def of_cases(cases: Mapping[str, Callable[[Ranks], Any]]) -> Callable[[Ranks], dict[str, Any]]:
    """All cases one after the other, in one group, in float64."""

    def work(ranks: Ranks) -> dict[str, Any]:
        in_float64()
        return {name: case(ranks) for name, case in cases.items()}

    return work


def differences(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """By name, how far two trainings are apart; all that is not equal in name and shape is infinitely far."""
    assert one.keys() == other.keys()
    return {name: float((one[name] - other[name]).abs().max()) if one[name].numel() else 0.0 for name in one}


def everywhere(found: Sequence[dict[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    """By case, what each rank has found."""
    for name in found[0]:
        yield name, [own[name] for own in found]
