"""Trials on the emulated device, in a process of their own: reads settings by case as JSON, prints a line per case."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from harness.components.preset import get_preset
from harness.components.registries import SPACES
from harness.data.randomness import seed_globals
from harness.stores.checkpoints import Checkpoint
from harness.study.configuration import RunConfig
from harness.study.expansion import expand
from harness.study.layout import Row
from harness.study.study import Study
from harness.study.trial import Trial
from harness.training import emulated_device
from harness.training.precision import fix_arithmetic
from harness.training.trial import Outcome, run_trial

SHORT = {"train.epochs": 2, "train.batch_size": 512, "rank.candidates": 2, "rank.bins": 2, "rank.top_sample": 2}


def configured(settings: dict[str, Any]) -> RunConfig:
    space = settings.get("space", "nasbench201").partition("-")[0]
    short = SHORT if space == "nasbench201" else {"train.epochs": 2}
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
            kept = Stopping(Path(folder), Trial(config), every=0.0, threads=1, device=emulated_device.NAME)
            kept.left = 2 if not stops else 10**9
            with contextlib.suppress(Stop):
                return computed(config, emulated_device.NAME, kept)
    raise AssertionError("it does not get on")


@contextlib.contextmanager
def plain() -> Iterator[None]:
    """The CPU without the faster ways that only it has."""
    engines = [module for name, module in sys.modules.items() if name.endswith(("nasbench201.engine", "darts.kernels"))]
    owners: list[Any] = [getattr(module, "Engine", module) for module in engines]
    before = [owner.fits for owner in owners]
    for owner in owners:
        owner.fits = lambda *given: False
    try:
        yield
    finally:
        for owner, fits in zip(owners, before, strict=True):
            owner.fits = fits


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
        there = computed(config, emulated_device.NAME)
        found = {name: dict(getattr(emulated_device, name)) for name in ("waits", "operations", "unordered")}
        resumed = in_pieces(config)
    with plain():
        here = computed(config, "cpu")
    return found | {"gpu": there.cost.get("gpu"), "same": same(there, here), "resumed": same(there, resumed)}


def budgets(cases: dict[str, list[Any]]) -> None:
    """Print the operations and waits per step at paper size: cases are (space, method, steps) by name."""
    from tests.perf.operations import of_step

    for name, (space, method, steps) in cases.items():
        step, _ = of_step(space, method, steps)
        print(json.dumps({"case": name, "operations": step.operations, "waits": step.waits}), flush=True)


def main() -> None:
    torch.set_num_threads(1)
    if "budgets" in sys.argv:
        budgets(json.load(sys.stdin))
        return
    for name, settings in json.load(sys.stdin).items():
        try:
            found = case(settings)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        print(json.dumps({"case": name, **found}), flush=True)


if __name__ == "__main__":
    main()
