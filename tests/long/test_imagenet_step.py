"""All stages at ImageNet's size on a CPU: 224 pixels, full width, batches of 32, a damaged image among them."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.perf.imagenet import write_images

CLASSES, TRAIN, VAL = 8, 10, 1
"""Images per class. Two of ten are held out: 64 are left to train with, two steps; one step has all its images."""

STUDY = """from harness.study import Column, FromPreset, Row, Study

study = Study(
    name="full_size",
    title="One row of Table 1",
    space="mobilenet",
    rows=[
        Row(
            {"Method": "SPOS-S"},
            {
                "method.name": "spos",
                "schedule.name": "calr",
                "clusters.name": "first-layer",
                "search.name": "evolution",
                "search.limits.flops": [None, FromPreset("S")],
                "retrain.which": 0,
            },
        )
    ],
    columns=[
        Column("FLOPs (M)", "retrained_flops", digits=2, best=None, scale=1e-6),
        Column("Top-1 (%)", "retrained_accuracy", digits=2),
        Column("Top-5 (%)", "retrained_top5", digits=2),
        Column("Peak memory (MB)", "supernet.training_memory_bytes", best=None, scale=2**-20, each_dataset=False),
    ],
)
"""

FEWER = [
    "train.epochs=1",
    "train.batch_size=32",
    "rank.images=8",
    "rank.calibration=1",
    "rank.batch_size=8",
    "search.population=2",
    "search.generations=1",
    "search.parents=1",
    "search.mutations=0",
    "search.crossovers=0",
    "retrain.epochs=1",
    "retrain.warmup_epochs=0",
    "retrain.batch_size=32",
]
"""What is smaller than the paper's preset: steps and scores, not the images or the networks."""


@pytest.mark.long
def test_a_row_of_the_papers_preset_on_damaged_images(tmp_path: Path) -> None:
    write_images(tmp_path / "data", CLASSES, TRAIN, VAL)
    damaged = tmp_path / "data" / "imagenet" / "train" / "n00000003" / "3_1.JPEG"
    damaged.write_bytes(damaged.read_bytes()[:20_000])  # as an interrupted copy leaves it
    (tmp_path / "full_size.py").write_text(STUDY)

    begin = time.monotonic()
    out = harness(tmp_path, "run", "full_size.py", "--preset", "paper", "--jobs", "1", "with", *FEWER)
    seconds, peak = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"{seconds:.0f} s and at most {peak / 2**20:.1f} GiB in all")

    runs = [path.parent for path in (tmp_path / "runs").glob("*/result.json")]
    assert len(runs) == 2, out  # the supernet with its search, and the retraining
    for run in runs:
        (line,) = [line for line in (run / "cout.txt").read_text().splitlines() if "left out" in line]
        assert line.startswith("imagenet") and str(damaged) in line and "truncated" in line
    stored = [json.loads((run / "result.json").read_text()) for run in runs]
    assert [one["cost"]["images"] for one in stored] == [63, 63]
    results = [one["result"] for one in stored]
    (found,) = (one["found"] for one in results if one.get("found"))
    (retrained,) = (one for one in results if one.get("retrained_accuracy") is not None)
    assert len(found) == 1 and 0 < retrained["retrained_flops"] <= 330e6
    assert 0 <= retrained["retrained_accuracy"] <= retrained["retrained_top5"] <= 100

    harness(tmp_path, "report", "full_size.py", "--preset", "paper", "--out", "reports", "with", *FEWER)
    table = (tmp_path / "reports" / "full_size.md").read_text()
    print(table)
    (row,) = [line for line in table.splitlines() if line.startswith("| SPOS-S")]
    for name, scale in (("retrained_flops", 1e-6), ("retrained_accuracy", 1), ("retrained_top5", 1)):
        assert f"{retrained[name] * scale:.2f}" in row


def harness(folder: Path, *words: str) -> str:
    """What a command prints, from the folder of a user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HARNESS_")}
    places = {"HARNESS_DATA": str(folder / "data"), "HARNESS_CACHE": str(folder / "cache")}
    environment = kept | places | {"PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "harness", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
