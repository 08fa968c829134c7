"""The rows of the table of speed: what is measured against what, and what should be reached."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import numpy as np

from harness import metrics
from harness.components.registries import BENCHMARKS
from harness.metrics import complexity_bias
from harness.stores.directory.store import DirectoryStore
from harness.study.configuration import Ranking
from harness.study.panel import panel
from tests.perf.darts import PATHS as DARTS_PATHS
from tests.perf.measuring import Row, Side, in_turns, together
from tests.perf.mobilenet import PATHS
from tests.perf.sides import RANKED, STEPS

ARCHITECTURES, CLASSES = 15_625, 7_548
"""Of NAS-Bench-201, and how many of them are different functions of the supernet's weights."""

PLAIN = "a plain NCHW supernet with a DataLoader"


def a_step(size: str, wanted: str, turns: int) -> Row:
    ours, plain = in_turns([Side("step", size), Side("plain_step", size)], turns)
    return Row(f"training step, {size} size", per(ours, STEPS[size]), per(plain, STEPS[size]), wanted, PLAIN)


def a_ranking(size: str, turns: int) -> Row:
    """Both extrapolated from random samples: of classes here, of architectures there."""
    ours, plain = in_turns([Side("ranking", size), Side("plain_ranking", size)], turns)
    whole = per(ours, RANKED[size] / CLASSES), per(plain, RANKED[size] / ARCHITECTURES)
    return Row(f"ranking all architectures, {size} size, from samples", *whole, "≥ 4.5", "each by itself in NCHW")


def the_whole_ranking(turns: int = 1) -> Row:
    """All classes for real; the other side is a sample, for it would take minutes."""
    ours, plain = in_turns([Side("ranking", "demo", "everything"), Side("plain_ranking", "demo")], turns)
    return Row(
        "ranking all architectures, demo size",
        ours,
        plain,
        "≥ 4.5",
        f"each by itself in NCHW ({RANKED['demo']} of them)",
        scale=ARCHITECTURES / RANKED["demo"],
    )


def separation(size: str, turns: int) -> Row:
    separated, plain = in_turns([Side("step", size, "operation"), Side("step", size)], turns)
    what = f"step with momentum separation, 5 clusters, {size} size"
    return Row(what, per(separated, STEPS[size]), per(plain, STEPS[size]), "≤ 1.03", "plain SGD", inverse=True)


def spread(size: str, turns: int) -> Row:
    measured, plain = in_turns([Side("step", size, "none", "spread"), Side("step", size)], turns)
    what = f"step with gradient and momentum spread measured, {size} size"
    return Row(what, per(measured, STEPS[size]), per(plain, STEPS[size]), "≤ 1.15", "without", inverse=True)


def overhead(turns: int) -> Row:
    whole, work = in_turns([Side("job"), Side("trial")], turns)
    what = "a demo trial as the harness runs it"
    return Row(what, whole, work, "≤ 1.02", "training and ranking alone", inverse=True)


def side_by_side(turns: int) -> Row:
    sides = [Side("trial"), Side("trial")]
    for side in sides:
        side.turn()
    both, after = [], []
    for _ in range(turns):
        after.append(sum(side.turn() for side in sides))
        both.append(together(sides))
    for side in sides:
        side.close()
    return Row("two demo trials side by side", both, after, "≥ 1.8", "one after the other")


def data(turns: int, batches: int = 100) -> Row:
    ours, plain = in_turns([Side("data", str(batches)), Side("plain_data", str(batches))], turns)
    what = "a batch of 64 augmented images, 32×32"
    return Row(what, per(ours, batches), per(plain, batches), "≥ 10", "a DataLoader with 2 workers and torchvision")


def imagenet(name: str, wanted: str, turns: int, batches: int = 4) -> Row:
    sides = [Side("imagenet_batches", name, str(batches)), Side("plain_imagenet_batches", str(batches))]
    ours, plain = in_turns(sides, turns)
    what = f"a batch of 32 images of 224×224, {name}, cropped and mirrored"
    return Row(what, per(ours, batches), per(plain, batches), wanted, "torchvision's ImageFolder, the same transforms")


def mobilenet(order: str, wanted: str, turns: int) -> Row:
    sides = [Side("mobilenet_step"), Side("plain_mobilenet_step", order)]
    ours, plain = in_turns(sides, turns)
    peaks = " and ".join(f"{side.memory / 2**30:.1f}" for side in sides)
    what = f"MobileNet step, full width, 32 images of 224×224 ({peaks} GiB at most)"
    against = f"timm's blocks{' in channels_last order' * (order == 'last')}"
    return Row(what, per(ours, PATHS), per(plain, PATHS), wanted, against)


def darts(order: str, wanted: str, turns: int) -> Row:
    ours, plain = in_turns([Side("darts_step"), Side("plain_darts_step", order)], turns)
    against = f"a plain loop over modules{' in channels_last order' * (order == 'last')}"
    what = "DARTS step, 16 channels, 8 cells, 64 images of 32×32"
    return Row(what, per(ours, DARTS_PATHS), per(plain, DARTS_PATHS), wanted, against)


def autoformer(wanted: str, turns: int) -> Row:
    sides = [Side("autoformer_step"), Side("plain_autoformer_step")]
    ours, plain = in_turns(sides, turns)
    peaks = " and ".join(f"{side.memory / 2**30:.1f}" for side in sides)
    what = f"AutoFormer step, full size, 32 images of 224×224 ({peaks} GiB at most)"
    return Row(what, per(ours, PATHS), per(plain, PATHS), wanted, "the same blocks as research code writes them")


def ranks_step(turns: int) -> Row:
    ours, alone = in_turns([Side("shared_step", "paper", "2"), Side("step", "paper")], turns)
    what = "training step of two processes, paper size, statistics of each one's part"
    return Row(what, per(ours, STEPS["paper"]), per(alone, STEPS["paper"]), "≥ 1.6", "one process")


def ranks_ranking(turns: int, count: int = 600) -> Row:
    sides = [Side("shared_ranking", "small", str(count), processes) for processes in ("2", "1")]
    ours, alone = in_turns(sides, turns)
    what = f"ranking {count} architectures by two processes, small size"
    return Row(what, ours, alone, "≥ 1.8", "one process")


def first_step(turns: int) -> Row:
    """From the command to the end of the first epoch of its first trial, 24 steps: a little more than to the first."""
    return Row("from `run` to the first steps (demo)", [_first() for _ in range(turns)], [], "≤ 6 s")


def _first() -> float:
    with tempfile.TemporaryDirectory() as store:
        command = [sys.executable, "-m", "harness", "run", "ablation_calr_ms", "--preset", "demo", "--seeds", "1"]
        command += ["--only", "method.name=spos", "--store", store, "with", "train.epochs=1", "rank.candidates=1"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        environment.pop("HARNESS_MONGO", None)
        begin = time.time()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        curves = [json.loads(path.read_text())["train_loss"] for path in Path(store).glob("*/metrics.json")]
        firsts = [curve["timestamps"][0] for curve in curves]
        return min(datetime.fromisoformat(when).replace(tzinfo=UTC).timestamp() for when in firsts) - begin


NEAR_EMPTY = 200


def ray(turns: int) -> Row:
    """Near-empty trials through Ray and by local processes: from the start of the first run to the end of the last."""
    ours, plain = [], []
    for _ in range(turns):
        ours.append(_near_empty("--executor", "ray", "--device", "cpu"))
        plain.append(_near_empty("--device", "cpu"))
    what = f"{NEAR_EMPTY} near-empty trials on Ray, 2 side by side, without its start"
    return Row(what, ours, plain, "≤ 1.5", "two local processes", inverse=True)


def _near_empty(*options: str) -> float:
    with tempfile.TemporaryDirectory() as store:
        command = [sys.executable, "-m", "harness", "run", "ablation_calr_ms", "--preset", "tiny", "--quiet"]
        command += ["--seeds", str(NEAR_EMPTY), "--only", "method.name=spos,schedule.name=cosine,clusters.name=none"]
        command += ["--store", store, "--jobs", "2", "--no-references", *options]
        command += ["with", "train.epochs=1", "rank.candidates=1", "rank.images=8"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        environment.pop("HARNESS_MONGO", None)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
        runs = [run for run in DirectoryStore(Path(store)).runs() if run.start_time and run.stop_time]
        if len(runs) != NEAR_EMPTY:
            raise SystemExit(f"{len(runs)} of {NEAR_EMPTY} trials were run")
        begin = min(datetime.fromisoformat(run.start_time) for run in runs if run.start_time)
        end = max(datetime.fromisoformat(run.stop_time) for run in runs if run.stop_time)
        return (end - begin).total_seconds()


def bias(turns: int, architectures: int = 4688) -> Row:
    """CB against all pairs by their definition; the two must be equal."""
    rng = np.random.default_rng(0)
    predicted, truth = rng.integers(0, 1000, architectures) / 10, rng.random(architectures) * 100
    size = rng.integers(0, 28, architectures).astype(np.float64)
    ours, plain = [], []
    for _ in range(turns):
        begin = time.perf_counter()
        found = complexity_bias(predicted, truth, size)
        ours.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        right = _bias_by_definition(predicted, truth, size)
        plain.append(time.perf_counter() - begin)
        if found != right:
            raise SystemExit(f"CB is {found}, by its definition {right}")
    what = f"CB over {architectures:,} architectures (all pairs in a matrix: {min(plain):.2g} s)"
    return Row(what, ours, [], "≤ 1 s")


def _bias_by_definition(predicted: np.ndarray, truth: np.ndarray, size: np.ndarray) -> float:
    lower = truth[:, None] < truth[None, :]
    wrong = lower & (predicted[:, None] > predicted[None, :])
    return float((wrong & (size[:, None] < size[None, :])).sum() / wrong.sum())


def the_panel(turns: int = 5) -> Row:
    """All measures of one run, against the same with every τ by scipy, one after the other."""
    made = BENCHMARKS.get("digits")()
    truth, rng = made.accuracies("digits"), np.random.default_rng(0)
    guess = np.round((truth + 10 * rng.standard_normal(len(truth))) * 2.56) / 2.56
    predictions = dict(zip(made.space, guess.tolist(), strict=True))
    ours: list[float] = []
    plain: list[float] = []
    panels = []
    for times, pairwise in [(ours, metrics.PAIRWISE), (plain, 0)] * turns:
        with mock.patch.object(metrics, "PAIRWISE", pairwise):
            begin = time.perf_counter()
            panels.append(panel(predictions, made, "digits", Ranking()))
            times.append(time.perf_counter() - begin)
    if any(one != panels[0] for one in panels):
        raise SystemExit("the two panels differ")
    return Row(f"panel of {len(guess):,} predictions (≤ 2 s)", ours, plain, "≥ 1.2", "every τ by scipy")


def per(times: list[float], parts: float) -> list[float]:
    return [seconds / parts for seconds in times]


ROWS: dict[str, Callable[[], Row]] = {
    "step": lambda: a_step("paper", "≥ 2.2", 7),
    "ranking": lambda: the_whole_ranking(2),
    "ranking-paper": lambda: a_ranking("paper", 2),
    "step-demo": lambda: a_step("demo", "≥ 1.8", 9),
    "step-small": lambda: a_step("small", "≥ 1.8", 9),
    "overhead": lambda: overhead(9),
    "separation": lambda: separation("small", 15),
    "spread": lambda: spread("demo", 15),
    "side-by-side": lambda: side_by_side(2),
    "ranks": lambda: ranks_step(7),
    "ranks-ranking": lambda: ranks_ranking(5),
    "data": lambda: data(7),
    "imagenet": lambda: imagenet("imagenet", "≥ 1.0", 9),
    "imagenet-256": lambda: imagenet("imagenet-256", "≥ 3.0", 9),
    "mobilenet": lambda: mobilenet("contiguous", "≥ 1.0", 5),
    "mobilenet-last": lambda: mobilenet("last", "≥ 1.0", 5),
    "darts": lambda: darts("contiguous", "≥ 1.0", 5),
    "darts-last": lambda: darts("last", "≥ 1.0", 5),
    "autoformer": lambda: autoformer("≥ 1.0", 5),
    "first-step": lambda: first_step(3),
    "ray": lambda: ray(3),
    "bias": lambda: bias(3),
    "panel": lambda: the_panel(5),
}
