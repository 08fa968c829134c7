"""Trials on the emulated device, in a process of their own: reads settings by case as JSON, prints a line per case."""

from __future__ import annotations

import contextlib
import itertools
import json
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any
from unittest import mock

import torch

from harness.components.dataset import DataSet, Stream
from harness.components.preset import get_preset
from harness.components.registries import DATASETS, SPACES
from harness.data import devices
from harness.data.loading import EvaluationBatches
from harness.study.configuration import RunConfig
from harness.study.expansion import expand
from harness.study.layout import Row
from harness.study.study import Study
from harness.training import emulated_device
from harness.training.precision import arithmetic
from harness.training.stages import train
from harness.training.workload import Size
from harness.work.doctor_gpu import Extent, GpuCheck, computed, in_pieces, same

IMAGES = {"train": 96, "valid": 64, "test": 64}
SHORT = {"train.epochs": 2, "rank.candidates": 2, "rank.bins": 2, "rank.top_sample": 2}


def few(whole: Callable[[], DataSet]) -> DataSet:
    """The data set with few images: what trials ask of a device does not depend on their number."""
    every = whole()
    parts: dict[str, Any] = {part: getattr(every, part).head(count) for part, count in IMAGES.items()}
    return replace(every, **parts)


def use_few_images() -> None:
    """Let trials have few images, from now on and in the whole process."""
    for name, entry in [(name, one) for name, one in DATASETS.items() if name.startswith("digits")]:
        DATASETS.entries[name] = replace(entry, thing=cache(partial(few, DATASETS.get(name))))


def configured(settings: dict[str, Any]) -> RunConfig:
    space = settings.get("space", "nasbench201").partition("-")[0]
    short = (SHORT if space == "nasbench201" else {"train.epochs": 1}) | {"train.batch_size": 32}
    study = Study("one", "one row", [Row({"": ""}, settings)], [])
    return expand(study, get_preset("tiny", space), 1, short)[0].trial.config


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """The CPU without the faster ways that only it has."""
    changed: dict[str, Callable[..., bool]] = {"fits": lambda *given: False}
    changed["leaves_out_biases"] = lambda x: not torch.is_grad_enabled()  # as on GPUs
    ends = ("nasbench201.engine", "darts.kernels", "nasbench201.networks")
    modules = [module for name, module in sys.modules.items() if name.endswith(ends)]
    owners: list[Any] = [getattr(module, "Engine", module) for module in modules if hasattr(module, "Engine")] + modules
    with contextlib.ExitStack() as stack:
        stack.enter_context(devices.forced_layout(devices.memory_format(emulated_device.NAME)))
        for owner in owners:
            for name, made in changed.items():
                if hasattr(owner, name):
                    stack.enter_context(mock.patch.object(owner, name, made))
        yield


@contextlib.contextmanager
def steps_watched() -> Iterator[Counter[str]]:
    """Context that counts the waits within training steps."""
    found: Counter[str] = Counter()
    make = train.make_step

    def watched(*given: Any) -> Any:
        before = Counter(emulated_device.waits)
        done = make(*given)
        found.update(emulated_device.waits - before)
        return done

    with mock.patch.object(train, "make_step", watched):
        yield found


def case(settings: dict[str, Any]) -> dict[str, Any]:
    config = configured(settings)
    SPACES.get(config.space)()
    with emulated_device.emulated():
        with steps_watched() as in_steps:
            there = computed(config, emulated_device.NAME)
        found: dict[str, Any] = {"in_steps": dict(in_steps), "between": dict(emulated_device.waits - in_steps)}
        found["unordered"] = dict(emulated_device.unordered)
        resumed = in_pieces(config, emulated_device.NAME)
    with plain():
        here = computed(config, "cpu")
    found |= {"arithmetic": arithmetic(emulated_device.NAME), "gpu": there.cost.get("gpu")}
    found["checkpoint"] = devices.with_model(emulated_device.NAME)
    return found | {"same": same(there, here), "resumed": same(there, resumed)}


def budgets(cases: dict[str, list[Any]]) -> None:
    """Print the operations and waits per step at paper size: cases are (space, method, steps) by name."""
    from tests.perf.operations import beyond_cells, of_step

    for method in ("spos", "fairnas"):
        print(json.dumps({"case": f"beyond cells, {method}", "operations": beyond_cells(method, 5)}), flush=True)
    for name, (space, method, steps) in cases.items():
        step, _ = of_step(space, method, steps)
        print(json.dumps({"case": name, "operations": step.operations, "waits": step.waits}), flush=True)


def ranking() -> dict[str, Any]:
    """What a ranking batch of NAS-Bench-201 at paper size launches."""
    from harness.training.workload import Workload, configuration
    from tests.perf.operations import SMALL

    with emulated_device.emulated():
        config = configuration(get_preset("paper", "nasbench201"), {"method.name": "spos"})
        work = Workload(config, emulated_device.NAME, SMALL["nasbench201"])
        work.rank()
        emulated_device.operations.clear()
        work.rank()
        return dict(emulated_device.operations)


def streamed() -> dict[str, Any]:
    """How often a use of streamed evaluation images copies some to the device, if they fit there and if not."""
    dataset = DATASETS.get("digits-16")()
    split = dataset.valid.head(64)
    found: dict[str, Any] = {}
    with emulated_device.emulated():
        held = [images.cpu() for images in EvaluationBatches(dataset, split, 32, emulated_device.NAME).images]
        for name, memory in (("fits", emulated_device.MEMORY), ("scarce", 1000)):
            with mock.patch.object(emulated_device, "MEMORY", memory):
                batches = EvaluationBatches(dataset, Stream(split, split.shape), 32, emulated_device.NAME)
            emulated_device.copies.clear()
            used = [images for images, _ in batches]
            found[name] = emulated_device.copies.total()
            found[f"same if {name}"] = all(torch.equal(a.cpu(), b) for a, b in zip(used, held, strict=True))
    return found


def doctor() -> dict[str, Any]:
    """What `harness doctor --gpu` finds on the device: states and texts, and the document."""
    sizes = {"nasbench201": Size(2, 8, 2)}
    extent = Extent(0.0, 0, sizes, tuple(sizes), together=1, studies=("nb201_main",))
    with emulated_device.emulated():
        check = GpuCheck(emulated_device.NAME, extent)
        findings = [(str(one.state), one.subject, one.text) for one in check.findings()]
    return {"findings": findings, "document": check.document}


def wrong() -> dict[str, Any]:
    """What it finds where every trial has other randomness, as on a GPU that computes something else."""
    trial: Any = sys.modules["harness.training.trial"]
    train, calls = trial.train, itertools.count()

    def otherwise(config: RunConfig, *given: Any) -> Any:
        return train(replace(config, seed=next(calls)), *given)

    with emulated_device.emulated(), mock.patch.object(trial, "train", otherwise):
        check = GpuCheck(emulated_device.NAME, Extent(spaces=("nasbench201",)))
        return {"findings": [(str(one.state), "trials", one.text) for one in check._trials()]}


CHECKS = {"doctor": doctor, "wrong": wrong, "ranking": ranking, "streamed": streamed}


def main() -> None:
    torch.set_num_threads(1)
    use_few_images()
    if "budgets" in sys.argv:
        given = json.load(sys.stdin)
        budgets(given)
        for name, check in CHECKS.items():
            print(json.dumps({"case": name, **check()}), flush=True)
        return
    for name, settings in json.load(sys.stdin).items():
        try:
            found = case(settings)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        print(json.dumps({"case": name, **found}), flush=True)


if __name__ == "__main__":
    main()
