"""Every method and space on a device that is not the CPU: it runs, gives the same bytes, resumes, and does not wait."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from harness.components.registries import METHODS

Settings = dict[str, Any]

BY_METHOD: dict[str, Settings] = {
    name: {"method.name": name} for name in METHODS.names() if name not in ("autoformer", "related")
}
OTHERS: dict[str, Settings] = {
    "calr-ms": {"method.name": "spos", "schedule.name": "calr", "clusters.name": "operation"},
    "observed": {"method.name": "spos", "observe.spread": True, "observe.subnets_every": 1, "rank.valid_loss": True},
    "tracked": {"method.name": "spos", "network.batch_norm": "tracked", "rank.calibration": 1},
    "adamw": {"method.name": "spos", "optimiser.name": "adamw"},
    "mixing": {"method.name": "spos", "train.augment": ["flip", "mixing", "cutout"]},
    "mobilenet": {"method.name": "spos", "space": "mobilenet-reduced", "search.name": "evolution"},
    "darts-space": {"method.name": "spos", "space": "darts"},
    "autoformer": {"method.name": "autoformer", "space": "autoformer-reduced"},
}

PER_EPOCH = ("harness/training/stages/train.py", "harness/data/devices.py", "harness/training/stages/rank.py")
"""Files that may wait for the device: once per epoch, stage or ranking."""
WAITING = {"pa-da", "greedynas", "cream", "gdas", "darts", "gm-nas", "shiftnas-reading", "observed", "tracked"}
WAITING |= {"mobilenet"}
"""Methods that choose by what they have computed, and measurements."""
UNORDERED = {"index_add_", "index_add", "scatter_add_", "scatter_add", "cumsum", "put_", "histc", "bincount"}
"""Operations that CUDA sums in another order each time."""


@pytest.mark.parametrize("cases", [BY_METHOD, OTHERS], ids=["methods", "others"])
def test_trials_on_a_device(cases: dict[str, Settings]) -> None:
    """In a process of their own: the device cannot be unregistered."""
    command = [sys.executable, "-m", "tests.on_emulated_device"]
    done = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    shown = {one["case"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert shown.keys() == cases.keys()
    problems = {name: list(_problems(name, one)) for name, one in shown.items()}
    assert not {name: found for name, found in problems.items() if found}


def _problems(name: str, shown: dict[str, Any]) -> Any:
    if "error" in shown:
        yield shown["traceback"]
        return
    if not shown["same"]:
        yield "other bytes than on the CPU without its faster code"
    if not shown["resumed"]:
        yield "other bytes if it is stopped and resumed"
    yield from (f"{one}: CUDA has no order for it" for one in UNORDERED & shown["operations"].keys())
    if name not in WAITING:
        steps = [where for where in shown["waits"] if not any(file in where for file in PER_EPOCH)]
        yield from (f"waits for the device in a step: {where}" for where in steps)
