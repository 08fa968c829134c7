"""Every method and space on a device that is not the CPU: it runs, gives the same bytes, resumes, and does not wait."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from harness.components.registries import METHODS

Settings = dict[str, Any]

AUGMENTATIONS = ["crop", "flip", "cutout", "erasing", "mixup", "cutmix"]

BY_METHOD: dict[str, Settings] = {
    name: {"method.name": name} for name in METHODS.names() if name not in ("autoformer", "related")
}
OTHERS: dict[str, Settings] = {
    "calr-ms": {"method.name": "spos", "schedule.name": "calr", "clusters.name": "operation"},
    "observed": {"method.name": "spos", "observe.spread": True, "observe.subnets_every": 1, "rank.valid_loss": True},
    "tracked": {"method.name": "spos", "network.batch_norm": "tracked", "rank.calibration": 1},
    "bfloat16": {"method.name": "spos", "train.precision": "bfloat16"},
    "augmented": {"method.name": "spos", "train.augment": AUGMENTATIONS},
    "adamw": {"method.name": "spos", "optimiser.name": "adamw"},
    "mobilenet": {"method.name": "spos", "space": "mobilenet-reduced", "search.name": "evolution"},
    "darts-space": {"method.name": "spos", "space": "darts"},
    "autoformer": {"method.name": "autoformer", "space": "autoformer-reduced", "train.precision": "float16"},
}

PER_EPOCH = ("harness/training/stages/train.py", "harness/data/devices.py", "harness/training/stages/rank.py")
"""Files that may wait for the device: once per epoch, stage or ranking."""
AFTER_TRAINING = ("methods/_differentiable.py", "spaces/mobilenet/networks.py")
"""Files that wait for it in rankings and calibration."""
WAITS = {"cream": 9, "gdas": 6, "greedynas": 2, "pa-da": 6, "shiftnas-reading": 6, "observed": 16, "tracked": 63}
"""Waits of methods that choose by what they have computed, and of measurements, in a trial. Others do not wait."""
SMALL_MAPS = "_adaptive_avg_pool2d_backward spaces/darts/operations.py"
"""For maps below 8×8, which preset `paper` does not have."""


@pytest.mark.parametrize("cases", [BY_METHOD, OTHERS], ids=["methods", "others"])
def test_trials_on_a_device(cases: dict[str, Settings]) -> None:
    """In a process of their own: the device cannot be unregistered."""
    shown = _shown(cases)
    problems = {name: list(_problems(name, one)) for name, one in shown.items()}
    assert not {name: found for name, found in problems.items() if found}


BUDGETS = {
    "spos": ("nasbench201", "spos", 40, 310, 0),
    "fairnas": ("nasbench201", "fairnas", 12, 1555, 0),
    "sumnas": ("nasbench201", "sumnas", 2, 3300, 0),
    "gdas": ("nasbench201", "gdas", 2, 1650, 2),
    "mobilenet": ("mobilenet", "spos", 4, 530, 0),
}
"""Space, method, steps; the most operations and waits of a step at paper size, on average, with the tested torch."""


def test_a_step_launches_no_more_operations_than_its_budget() -> None:
    """A slowdown on GPUs is seen without one: small networks are bound by launches."""
    shown = _shown({name: list(budget[:3]) for name, budget in BUDGETS.items()}, "budgets")
    for name, (_, _, _, operations, waits) in BUDGETS.items():
        assert shown[name]["operations"] <= operations and shown[name]["waits"] <= waits, (name, shown[name])


def _shown(cases: dict[str, Any], *arguments: str) -> dict[str, Any]:
    """What a process with the emulated device shows of each case."""
    command = [sys.executable, "-m", "tests.on_emulated_device", *arguments]
    done = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    shown = {one["case"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert shown.keys() == cases.keys()
    return shown


def _problems(name: str, shown: dict[str, Any]) -> Any:
    if "error" in shown:
        yield shown["traceback"]
        return
    if not shown["same"]:
        yield "other bytes than on the CPU without its faster code"
    if shown["gpu"] != "emulated GPU":
        yield f"the cost names {shown['gpu']} as the model of the GPU"
    if not shown["resumed"]:
        yield "other bytes if it is stopped and resumed"
    yield from (f"CUDA has no order for {one}" for one in shown["unordered"] if not one.startswith(SMALL_MAPS))
    others = (*PER_EPOCH, *AFTER_TRAINING)
    steps = {where: count for where, count in shown["waits"].items() if not any(file in where for file in others)}
    if sum(steps.values()) > WAITS.get(name, 0):
        yield f"waits for the device in its steps: {steps}"
