"""Every method and space on a device that is not the CPU: it runs, gives the same bytes, resumes, and does not wait."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from harness.components.registries import METHODS

Settings = dict[str, Any]

AUGMENTATIONS = ["crop", "flip", {"name": "cutout", "length": 4}, "erasing"]
"""Those that draw on the device, apart from the others: a CPU draws for both from one generator."""

BY_METHOD: dict[str, Settings] = {
    name: {"method.name": name} for name in METHODS.names() if name not in ("autoformer", "related")
}
OTHERS: dict[str, Settings] = {
    "calr-ms": {"method.name": "spos", "schedule.name": "calr", "clusters.name": "operation"},
    "observed": {"method.name": "spos", "observe.spread": True, "observe.subnets_every": 1, "rank.valid_loss": True},
    "tracked": {"method.name": "spos", "network.batch_norm": "tracked", "rank.calibration": 1},
    "bfloat16": {"method.name": "spos", "train.precision": "bfloat16"},
    "augmented": {"method.name": "spos", "train.augment": AUGMENTATIONS},
    "mixed": {"method.name": "spos", "train.augment": ["mixup", "cutmix"]},
    "adamw": {"method.name": "spos", "optimiser.name": "adamw"},
    "mobilenet": {"method.name": "spos", "space": "mobilenet-reduced", "search.name": "evolution"},
    "darts-space": {"method.name": "spos", "space": "darts"},
    "autoformer": {"method.name": "autoformer", "space": "autoformer-reduced", "train.precision": "float16"},
}

WAITS = {"cream": 17, "gdas": 6, "greedynas": 2, "pa-da": 3, "shiftnas-reading": 6, "supernet-shifting": 3}
"""Waits in the steps of a trial, of methods that choose by what they have computed. Others do not wait."""
OFTEN = 2
"""How often a line may wait for the device outside of steps: once per epoch. A trial has at least three steps."""
MORE_OFTEN = {
    "fsnas": {"_to_copy harness/training/stages/train.py": 5},  # an epoch of each supernet
    "darts": {"_local_scalar_dense methods/_differentiable.py": 24, "tolist methods/_differentiable.py": 6},
    "gdas": {"_local_scalar_dense methods/_differentiable.py": 24, "tolist methods/_differentiable.py": 6},
    "observed": {
        "synchronize harness/data/devices.py": 9,
        "_local_scalar_dense harness/training/observers/spread.py": 4,
        "_local_scalar_dense harness/training/observers/curves.py": 12,
    },
    "tracked": {"_local_scalar_dense spaces/nasbench201/networks.py": 55},  # calibration of two architectures
    "mobilenet": {"synchronize harness/data/devices.py": 5},  # a search
}
"""Lines that wait more often, and how often: scores of a method's own, measurements, calibration."""
SMALL_MAPS = "_adaptive_avg_pool2d_backward spaces/darts/operations.py"
"""For maps below 8×8, which preset `paper` does not have."""


@pytest.mark.parametrize("cases", [BY_METHOD, OTHERS], ids=["methods", "others"])
def test_trials_on_a_device(cases: dict[str, Settings]) -> None:
    """In a process of their own: the device cannot be unregistered."""
    shown = _shown(cases)
    problems = {name: list(_problems(name, one)) for name, one in shown.items()}
    assert not {name: found for name, found in problems.items() if found}


BUDGETS = {
    "spos": ("nasbench201", "spos", 5, 310, 0),
    "fairnas": ("nasbench201", "fairnas", 2, 1550, 0),
    "sumnas": ("nasbench201", "sumnas", 2, 3300, 0),
    "gdas": ("nasbench201", "gdas", 2, 1650, 2),
    "mobilenet": ("mobilenet", "spos", 4, 530, 0),
}
"""Space, method, steps; the most operations and waits of a step at paper size, on average, with the tested torch."""


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return _shown({name: list(budget[:3]) for name, budget in BUDGETS.items()}, "budgets")


def test_a_step_launches_no_more_operations_than_its_budget(measured: dict[str, Any]) -> None:
    """A slowdown on GPUs is seen without one: small networks are bound by launches."""
    for name, (_, _, _, operations, waits) in BUDGETS.items():
        assert measured[name]["operations"] <= operations and measured[name]["waits"] <= waits, (name, measured[name])


def test_a_step_launches_nothing_beyond_its_cells_but_what_is_counted_here(measured: dict[str, Any]) -> None:
    """Exact, whatever the paths are: where their cells make a SPOS step of 310 operations, FairNAS's has 1,546."""
    update = 14
    path = 52  # stem, reductions, last normalisation, classifier, loss
    shared = 13  # parameters outside of cells, whose gradients are added from path to path
    assert measured["beyond cells, spos"]["operations"] == [update + path] * 5
    assert measured["beyond cells, fairnas"]["operations"] == [update + 5 * path + 4 * shared] * 5
    cells = (310 - update - path) * 5
    assert update + 5 * path + 4 * shared + cells <= 1550


def test_rankings_add_no_bias_that_normalisation_subtracts(measured: dict[str, Any]) -> None:
    ranking = measured["ranking"]
    assert ranking["convolution with bias"] == 1 and ranking["convolution"] > 60  # the classifier's is the only one


def test_streamed_images_of_evaluations_stay_on_the_device_where_they_fit(measured: dict[str, Any]) -> None:
    streamed = measured["streamed"]
    assert streamed["fits"] == 0 and streamed["scarce"] == 2  # one copy per batch
    assert streamed["same if fits"] and streamed["same if scarce"]


def test_the_check_of_a_gpu_runs(measured: dict[str, Any]) -> None:
    """`harness doctor --gpu`: what it says of the emulated device, which computes what a CPU computes."""
    findings, document = measured["doctor"]["findings"], measured["doctor"]["document"]
    assert [state for state, *_ in findings if state == "problem"] == [], findings
    subjects = [subject for _, subject, _ in findings]
    assert subjects == ["gpu", "trials", "speed", "layout", "together", "hours"] and "problems" not in document
    trial = document["trials"]["nasbench201"]
    assert trial["repeats"] and trial["resumes"] and 0 < trial["difference"] < 0.05
    assert all(document["speed"]["nasbench201"][time] > 0 for time in ("step_ms", "ranking_ms"))
    assert set(document["layout"]["nasbench201"]) == {"channel by channel", "pixel by pixel"}
    assert document["gpu"] == "emulated GPU" and document["together"]["steps_per_second"]["1"] > 0
    hours = document["hours"]["nb201_main"]
    assert hours["published_training"] == pytest.approx(6 * (2.67 + 5.13 + 16.04), rel=0.01)
    speed = document["speed"]["nasbench201"]
    passes = 3 * 2 * (250 * 25_000 + 1000 * 25_000 + 1500 * 25_000)
    assert hours["same_training"] == pytest.approx(passes / 2 * speed["step_ms"] / 3.6e6, rel=0.01)


def test_the_check_of_a_gpu_finds_a_wrong_one(measured: dict[str, Any]) -> None:
    said = [text for state, subject, text in measured["wrong"]["findings"] if (state, subject) == ("problem", "trials")]
    assert len(said) == 1 and "from those of a CPU" in said[0] and "other bytes the second time" in said[0]


def _shown(cases: dict[str, Any], *arguments: str) -> dict[str, Any]:
    """What a process with the emulated device shows of each case."""
    command = [sys.executable, "-m", "tests.on_emulated_device", *arguments]
    done = subprocess.run(command, input=json.dumps(cases), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    shown = {one["case"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert shown.keys() >= cases.keys()
    return shown


def _problems(name: str, shown: dict[str, Any]) -> Any:
    if "error" in shown:
        yield shown["traceback"]
        return
    if not shown["same"]:
        yield "other bytes than on the CPU without its faster code"
    if shown["gpu"] != "emulated GPU":
        yield f"the cost names {shown['gpu']} as the model of the GPU"
    if shown["checkpoint"] != "emulated (emulated GPU)":
        yield f"checkpoints name {shown['checkpoint']} as the model of the GPU"
    layout = "pixel by pixel" if name in ("bfloat16", "autoformer") else "channel by channel"
    if not shown["arithmetic"].endswith(f"images {layout}"):
        yield f"the cost says {shown['arithmetic']!r}"
    if not shown["resumed"]:
        yield "other bytes if it is stopped and resumed"
    yield from (f"CUDA has no order for {one}" for one in shown["unordered"] if not one.startswith(SMALL_MAPS))
    if sum(shown["in_steps"].values()) > WAITS.get(name, 0):
        yield f"waits for the device in its steps: {shown['in_steps']}"
    often = dict.fromkeys(shown["between"], OFTEN)
    for start, most in MORE_OFTEN.get(name, {}).items():
        often |= {where: most for where in often if where.startswith(start)}
    yield from (f"waits {count} times: {where}" for where, count in shown["between"].items() if count > often[where])
