"""Measured costs: memory that grows only with what is allocated, stages that sum to the whole."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
import torch

from harness.components.method import Step
from harness.training.cost import Meter, Sampling

MEGABYTE = 2**20


def meter() -> Meter:
    return Meter(torch.device("cpu"))


def test_peak_memory_is_what_was_allocated_since_the_start() -> None:
    before = torch.ones(64 * MEGABYTE // 4)  # not this meter's
    counts = meter()
    assert counts.peak_memory < 8 * MEGABYTE
    large = torch.ones(128 * MEGABYTE // 4)
    assert 120 * MEGABYTE < counts.peak_memory < 160 * MEGABYTE
    del large, before
    assert 120 * MEGABYTE < counts.peak_memory < 160 * MEGABYTE  # the peak stays
    assert meter().peak_memory < 8 * MEGABYTE  # and the next meter starts anew


def test_stages_sum_up_to_the_whole() -> None:
    counts = meter()
    for name in ("train", "rank", "train", "rank"):
        started = time.perf_counter()
        while time.perf_counter() - started < 0.01:
            pass
        counts.stage(name)
    assert list(counts.stages) == ["train", "rank"]
    assert all(seconds >= 0.02 for seconds in counts.stages.values())
    assert 0.04 <= sum(counts.stages.values()) <= counts.seconds
    assert counts.seconds - sum(counts.stages.values()) < 0.02


def test_a_resumed_meter_goes_on_counting() -> None:
    first = meter()
    first.passes, first.images, first.evaluations = 3, 30, 2
    first.stage("train")
    # As another process measured it: this one may have memory to spare, and not grow by what it allocates.
    state = first.state() | {"peak_memory": 64 * MEGABYTE}
    second = meter()
    while second.seconds < 0.01:
        pass
    second.restore(state)
    assert (second.passes, second.images, second.evaluations, second.resumed) == (3, 30, 2, 1)
    assert second.seconds >= state["seconds"] + 0.01
    assert second.peak_memory >= 64 * MEGABYTE
    second.stage("rank")
    assert second.stages["train"] == first.stages["train"] and second.stages["rank"] >= 0.01
    assert sum(second.stages.values()) == pytest.approx(second.seconds, abs=0.5)
    assert second.state()["resumed"] == second.json()["resumed"] == 1 and first.json()["resumed"] == 0


def test_steps_and_their_choices_add_up_and_time_counts_once() -> None:
    counts, choosing = meter(), Sampling()
    for _ in range(2):
        with choosing.counting(counts.device, 2, 20), choosing.counting(counts.device, 1, 10):
            started = time.perf_counter()
            while time.perf_counter() - started < 0.01:
                pass
        counts.count(Step(torch.ones(1), 1, 8, forward_passes=2, forward_images=16, sampling_passes=1), choosing)
    assert (counts.passes, counts.images, counts.forward_passes, counts.forward_images) == (2, 16, 4, 32)
    assert (counts.sampling_passes, counts.sampling_images) == (2 * (3 + 1), 2 * 30)
    assert 0.02 <= counts.sampling_seconds < counts.seconds
    counts.count(Step(torch.ones(1), 1, 8), choosing)  # one that says no more of itself cost no more
    assert (counts.passes, counts.images, counts.forward_passes, counts.forward_images) == (3, 24, 4, 32)


def test_costs_are_plain_json() -> None:
    counts = meter()
    counts.passes, counts.images, counts.evaluations = 1, 2, 3
    counts.stage("train")
    document = counts.json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert (document["passes"], document["images"], document["evaluations"]) == (1, 2, 3)
    assert document["stage_seconds"] == counts.stages and document["device"] == "cpu"
    assert document["wall_seconds"] == pytest.approx(counts.seconds, abs=0.5)


RETURNED = """
import torch
from harness.training.cost import Meter
from harness.training.allocator import keep_freed_memory
keep_freed_memory()
meter = Meter(torch.device("cpu"))
held = torch.ones(8 << 20)  # 32 MB that training holds
meter.steps_done(0)
with meter.observation():
    evaluated = torch.ones(64 << 20)  # 256 MB that an observation needs for a moment
    del evaluated
    imported = torch.ones(16 << 20)  # 64 MB that stay
step = torch.ones(4 << 20)
meter.steps_done(8 << 20)
print(meter.training_memory >> 20, meter.peak_memory >> 20)
"""


def test_what_an_observation_needed_is_no_memory_of_training() -> None:
    done = subprocess.run([sys.executable, "-c", RETURNED], capture_output=True, text=True, check=True)
    training, peak = map(int, done.stdout.split())
    assert 32 <= training < 60 and 280 <= peak < 340
