"""Trials on the emulated device, in a process of their own: reads settings by case as JSON, prints a line per case."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from harness.components.dataset import Stream
from harness.components.preset import get_preset
from harness.components.registries import DATASETS, SPACES
from harness.data import devices
from harness.data.loading import EvaluationBatches
from harness.data.randomness import seed_globals
from harness.stores.checkpoints import Checkpoint
from harness.study.configuration import RunConfig
from harness.study.expansion import expand
from harness.study.layout import Row
from harness.study.study import Study
from harness.study.trial import Trial
from harness.training import emulated_device
from harness.training.precision import arithmetic, fix_arithmetic
from harness.training.stages import train
from harness.training.trial import Outcome, run_trial

SHORT = {"train.epochs": 2, "train.batch_size": 512, "rank.candidates": 2, "rank.bins": 2, "rank.top_sample": 2}


def configured(settings: dict[str, Any]) -> RunConfig:
    space = settings.get("space", "nasbench201").partition("-")[0]
    short = SHORT if space == "nasbench201" else {"train.epochs": 1}
    study = Study("one", "one row", [Row({"": ""}, settings)], [])
    return expand(study, get_preset("tiny", space), 1, short)[0].trial.config


class Stop(Exception):
    """Stands for whatever ends a process."""


class Stopping(Checkpoint):
    """Saves between any two steps; stops the trial right after the second save."""

    left = 2

    def save(self, state: dict[str, Any]) -> None:
        super().save(state)
        self.left -= 1
        if not self.left:
            raise Stop


def computed(config: RunConfig, device: str, checkpoint: Checkpoint | None = None) -> Outcome:
    seed_globals(config.seed)
    fix_arithmetic(config.train.precision)
    return run_trial(config, device, checkpoint=checkpoint)


def in_pieces(config: RunConfig) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        for stops in range(100):
            every = 0.0 if not stops else 1e9
            kept = Stopping(Path(folder), Trial(config), every=every, threads=1, device=emulated_device.NAME)
            with contextlib.suppress(Stop):
                return computed(config, emulated_device.NAME, kept)
    raise AssertionError("it does not get on")


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


def same(one: Outcome, other: Outcome) -> bool:
    """Whether weights and predictions are equal to the last bit."""
    assert one.supernets is not None and other.supernets is not None
    pairs = zip(one.supernets.networks, other.supernets.networks, strict=True)
    states = [[{n: getattr(t, "raw", t) for n, t in net.state_dict().items()} for net in pair] for pair in pairs]
    return one.predictions == other.predictions and all(torch.equal(a[n], b[n]) for a, b in states for n in a)


def case(settings: dict[str, Any]) -> dict[str, Any]:
    config = configured(settings)
    SPACES.get(config.space)()
    with emulated_device.emulated():
        with steps_watched() as in_steps:
            there = computed(config, emulated_device.NAME)
        found = {"in_steps": dict(in_steps), "between": dict(emulated_device.waits - in_steps)}
        found["unordered"] = dict(emulated_device.unordered)
        resumed = in_pieces(config)
    with plain():
        here = computed(config, "cpu")
    found |= {"arithmetic": arithmetic(emulated_device.NAME), "gpu": there.cost.get("gpu")}
    return found | {"same": same(there, here), "resumed": same(there, resumed)}


def budgets(cases: dict[str, list[Any]]) -> None:
    """Print the operations and waits per step at paper size: cases are (space, method, steps) by name."""
    from tests.perf.operations import of_step

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


CHECKS = {"ranking": ranking, "streamed": streamed}


def main() -> None:
    torch.set_num_threads(1)
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
