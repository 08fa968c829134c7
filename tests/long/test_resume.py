"""Trials killed with SIGKILL at random moments end with the bytes of one that was left alone.

This file is also the program that forks, kills and forks again: it has imported torch but runs no tensor
operation, so that each attempt is a fresh process that starts in milliseconds.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KILLS = 20
FILES = ("weights.pt", "predictions.json", "result.json", "curves.json", "searched.json")

SETTINGS: dict[str, dict[str, Any]] = {
    "spos": {"train": {"epochs": 4, "batch_size": 64}},
    "fairnas": {"train": {"epochs": 1, "batch_size": 64}},
    "fsnas": {"train": {"epochs": 1, "batch_size": 64}, "optimiser": {"learning_rate": 0.1, "inactive": "decay"}},
    "evolution": {
        "method": "spos",
        "train": {"epochs": 1, "batch_size": 512},
        "rank": {"images": 512, "candidates": 2, "bins": 2},
        "search": {"name": "evolution", "generations": 8, "limits": {"flops": [None, 80_000]}},
    },
    "autoformer": {
        "space": "autoformer-reduced",
        "dataset": "digits-16",
        "benchmark": None,
        "clusters": "first-layer",
        "network": {"patch_size": 8, "drop_path": 0.2},
        "optimiser": {"name": "adamw", "learning_rate": 3e-3},
        "train": {
            "epochs": 2,
            "batch_size": 128,
            "warmup_steps": 4,
            "label_smoothing": 0.1,
            "order": "repeated",
            "augment": ["timm-rand-augment", {"name": "erasing", "fill": "noise"}, "mixing"],
        },
        "rank": {"images": 128, "top1": False},
        "observe": {},
        "search": {
            "name": "evolution",
            "population": 8,
            "generations": 4,
            "parents": 4,
            "mutations": 4,
            "crossovers": 2,
            "limits": {"parameters": [30_000, 45_000]},
            "test_accuracy": True,
        },
    },
}


@pytest.mark.long
@pytest.mark.parametrize("method", SETTINGS)
def test_killed_at_random_moments(method: str, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    program = [sys.executable, __file__, method, str(tmp_path), str(KILLS)]
    done = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    print(f"{method}: {figures}")
    assert figures["kills"] >= KILLS and figures["resumed"] > KILLS / 4
    whole, *pieces = sorted((tmp_path / "trials").iterdir())
    assert len(pieces) == figures["trials"]
    for piece in pieces:
        for name in FILES:
            assert (piece / name).read_bytes() == (whole / name).read_bytes(), f"{piece.name}: {name}"
    assert not list((tmp_path / "work").iterdir())  # nothing half-written stays behind either


def attempt(method: str, work: Path, out: Path, every: float, log: int) -> None:
    """Run the trial in this process, from its checkpoint if there is one, and store what came out."""
    import torch

    from harness.stores.checkpoints import Checkpoint
    from harness.study.configuration import RunConfig
    from harness.study.trial import Trial
    from harness.training.trial import Watch, run_trial

    torch.set_num_threads(1)
    config = RunConfig.from_json(
        {
            "method": method,
            "schedule": "calr",
            "clusters": "operation",
            "network": {"width": 4, "depth": 1},
            "optimiser": {"learning_rate": 0.1},
            "rank": {"images": 128, "candidates": 60, "bins": 20},
            "observe": {"kendall_tau_every": 1},
            **SETTINGS[method],
        }
    )
    checkpoint = Checkpoint(work, Trial(config), every=every, threads=1, device="cpu")
    state = checkpoint.load()
    stage = "none"
    if state is not None:
        ranking, observing = len(state["predictions"][1]) > 0, len(state["course"]["paths"]) == 16
        stage = "rank" if ranking else "observe or end of epoch" if observing else "train"
        stage = "search" if any(len(found[1]) for found in state["scores"].values()) else stage
    os.write(log, f"{stage}\n".encode())
    curves: list[Any] = []
    watch = Watch(
        metric=lambda name, step, value: curves.append([name, step, value]),
        restored=lambda points: curves.extend([point["name"], point["step"], point["value"]] for point in points),
    )
    outcome = run_trial(config, watch=watch, checkpoint=checkpoint if every else None)
    assert outcome.supernets is not None
    out.mkdir(parents=True, exist_ok=True)
    networks = outcome.supernets.networks
    torch.save([{name: t.cpu() for name, t in net.state_dict().items()} for net in networks], out / "weights.pt")
    predictions = [[list(architecture), value] for architecture, value in outcome.predictions.items()]
    documents = {"predictions": predictions, "result": outcome.result, "curves": curves, "searched": outcome.searched}
    for name, document in documents.items():
        (out / f"{name}.json").write_text(json.dumps(document))
    checkpoint.remove()


def fork(*arguments: Any) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        attempt(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(child: int, within: float) -> int | None:
    """How the child ended by itself; None if it did not in that time."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return status
        time.sleep(0.001)
    return None


def main(method: str, folder: Path, kills: int) -> None:
    """One trial in peace, then trials with kills until there were enough; prints the figures."""
    import scipy.stats  # noqa: F401
    import sklearn.datasets  # noqa: F401
    import timm.data.auto_augment  # noqa: F401
    import torch._dynamo  # noqa: F401  # the first step would import it
    import torchvision.transforms.v2  # noqa: F401

    import harness.training.trial  # noqa: F401

    rng = random.Random(method)
    work, trials = folder / "work", folder / "trials"
    work.mkdir()
    log_path = folder / "log"
    log = os.open(log_path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    started = time.monotonic()
    assert os.waitpid(fork(method, work, trials / "0", 0.0, log), 0)[1] == 0
    peace = time.monotonic() - started
    killed = finished = 0
    while killed < kills:
        trial = trials / str(finished + 1)
        while True:
            child = fork(method, work, trial, rng.uniform(0.05, 0.2), log)
            status = ended(child, within=rng.uniform(0.05, peace) if killed < kills else 1800.0)
            if status is not None:
                assert status == 0, status
                break
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            killed += 1
        finished += 1
    stages = log_path.read_text().split("\n")[:-1]
    resumed = {stage: stages.count(stage) for stage in sorted(set(stages)) if stage != "none"}
    print(
        json.dumps(
            {
                "kills": killed,
                "trials": finished,
                "resumed": sum(resumed.values()),
                "resumed in": resumed,
                "seconds in peace": round(peace, 2),
                "seconds with kills": round(time.monotonic() - started - peace, 2),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
