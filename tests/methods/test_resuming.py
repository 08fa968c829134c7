"""Methods whose paths depend on what came before go on from a stored state as if nothing had happened."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch

from harness.components.discovery import component
from harness.training.stages.train import make_step
from tests.methods.small import EPOCHS, STEPS, batch_of, clusters, training_of

METHODS: dict[str, Any] = {
    "sumnas": lambda: component("methods.sumnas").SUMNAS(paths_renewed="epoch"),
    "pa-da": lambda: component("methods.pa_da").PADA(),
    "greedynas": lambda: component("methods.greedynas").GreedyNAS(candidates=4, kept=3),
    "shiftnas": lambda: component("methods.shiftnas").ShiftNAS(groups=3, uniform=0.0),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("after", [4, 6, 7, 10])
def test_a_resumed_training_goes_on_alike(name: str, after: int) -> None:
    """In the middle of an epoch and between two; sources store plain JSON."""
    method = METHODS[name]()
    whole, resumed = (training_of(method, rule=clusters.ByOperation(at=(0,))) for _ in range(2))
    paths: list[Any] = []
    for step in range(EPOCHS * STEPS):
        if step == after:
            state = copy.deepcopy(whole.state())
            state["source"] = json.loads(json.dumps(state["source"]))
            resumed.restore(state)
        make_step(method, whole, batch_of(step), step)
        if step >= after:
            make_step(method, resumed, batch_of(step), step)
            paths.append((list(whole.trained), list(resumed.trained)))
    assert all(one == other for one, other in paths)
    for one, other in zip(whole.network.parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(one, other)
    stored, other = (json.dumps(training.source.state()) for training in (whole, resumed))
    assert stored == other
