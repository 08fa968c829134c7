"""SUMNAS: the outer step is that along the mean displacement, by a slow reference."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from harness.components.discovery import component
from harness.errors import InvalidConfiguration
from harness.training.precision import make_scaler
from harness.training.stages.train import make_step
from tests.methods.small import Small, batch_of, clusters, schedules, training_of

SUMNAS: Any = component("methods.sumnas").SUMNAS
CLIP = 0.3
"""Below the norms of these gradients, so that clipping shows."""


def displaced(network: Any, path: Any, batch: Any, own: Any, optimiser: torch.optim.Optimizer) -> list[torch.Tensor]:
    """w0 − w_k, by a copy of the network and torch's own optimiser of it."""
    own.load_state_dict(network.state_dict())
    for _ in range(2):
        optimiser.zero_grad()
        loss: Any = torch.nn.functional.cross_entropy(own(batch.images, path), batch.labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(own.parameters(), CLIP)
        optimiser.step()
    return [w - moved.detach() for w, moved in zip(network.parameters(), own.parameters(), strict=True)]


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("schedule", [schedules.Cosine(), schedules.CaLR()])
def test_the_outer_step_is_along_the_mean_displacement(schedule: Any, kept: bool) -> None:
    """The rate of the schedule is the outer one. CaLR weights the displacement of each path by the path's own rate.

    One inner optimiser serves all paths and steps, or every path has its own.
    """
    outer = {"learning_rate": 0.7, "momentum": 0.5, "weight_decay": 0.01, "nesterov": False}
    method = SUMNAS(inner_clip=CLIP, inner_rate=0.5, inner_momentum_kept=kept)
    training = training_of(method, schedule, clip=None, **outer)
    expected = copy.deepcopy(training.network)
    own = copy.deepcopy(expected)
    inner = torch.optim.SGD(own.parameters(), lr=0.5, momentum=0.9)

    def fresh() -> torch.optim.Optimizer:
        return inner if kept else torch.optim.SGD(own.parameters(), lr=0.5, momentum=0.9)

    momenta = [torch.zeros_like(parameter) for parameter in expected.parameters()]
    for step in range(3):
        batch = batch_of(step)
        done = make_step(method, training, batch, step)
        paths = list(training.trained)
        factors = training.rate_factors(paths, step)
        each = [displaced(expected, path, batch, own, fresh()) for path in paths]
        together = schedule.depends_on_path
        for place, (weights, momentum) in enumerate(zip(expected.parameters(), momenta, strict=True)):
            mean = sum((f if together else 1.0) * own[place] for f, own in zip(factors, each, strict=True)) / 3
            decay = 0.01 * (sum(factors) / 3 if together else 1.0)
            momentum.mul_(0.5).add_(mean + decay * weights.detach())
            weights.data.sub_((0.7 if together else 0.7 * factors[0]) * momentum)
        for ours, theirs in zip(training.network.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
        assert len(paths) == 3 and len(done.losses) == done.passes == method.paths_per_step(Small()) == 6


def test_paths_are_fair_and_of_one_cluster() -> None:
    method = SUMNAS()
    training = training_of(method, rule=clusters.ByOperation(at=(1,)))
    for step in range(4):
        make_step(method, training, batch_of(step), step)
        first, second, third = zip(*training.trained, strict=True)
        assert sorted(first) == sorted(third) == [0, 1, 2] and len(set(second)) == 1
    assert len(training.momentum.optimisers) == 2


@pytest.mark.parametrize(("renewed", "different"), [("step", 6), ("epoch", 2)])
def test_paths_are_renewed_for_each_step_or_once_per_epoch(renewed: str, different: int) -> None:
    method = SUMNAS(paths_renewed=renewed)
    training = training_of(method)
    drawn = set()
    for step in range(6):  # two epochs
        make_step(method, training, batch_of(step), step)
        drawn.add(tuple(training.trained))
    assert len(drawn) == different


def test_half_precision_that_scales_losses_is_refused() -> None:
    training = training_of(SUMNAS())
    training.momentum.scaler = make_scaler("float16")
    with pytest.raises(InvalidConfiguration, match=r"train\.precision=float32 or bfloat16"):
        SUMNAS().begin(training)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inner_steps": 0}, "inner_steps must be at least 1, not 0"),
        ({"inner_rate": 0.0}, "inner_rate must be above 0"),
        ({"inner_momentum": 1.0}, r"inner_momentum must be in \[0, 1\)"),
        ({"inner_clip": 0.0}, "inner_clip must be above 0"),
        ({"paths_renewed": "never"}, "'never'; allowed: step, epoch"),
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        SUMNAS(**options)
