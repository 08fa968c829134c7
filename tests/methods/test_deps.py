"""DεpS: the largest subnet alone, the rise of the others' rates, and a step against slow references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from harness.errors import InvalidConfiguration
from harness.study.configuration import RunConfig
from harness.study.expansion import passes_per_step
from tests.methods.plain_steps import batch_of, one_step, plain_training, stepped
from tests.toy import toy_config

STEPS = 12
"""Of `plain_training`."""
COSINE: dict[str, Any] = {"schedule": "cosine"}


def test_the_largest_subnet_has_the_delay_for_itself(toy_project: Path) -> None:
    method, training = plain_training("deps", delay=4 / STEPS, rise=0.0)
    assert training.total_steps == STEPS
    for step in range(4):
        batch = batch_of(step)
        expected = stepped(training, lambda path, batch=batch: training.loss(batch, path))  # type: ignore[misc]
        done = one_step(method, training, step)
        assert (training.trained, done.passes) == ([(2, 1, 0)], 1)
        for now, then in zip(training.network.parameters(), expected((2, 1, 0)), strict=True):
            assert torch.allclose(now, then, atol=1e-6)
    done = one_step(method, training, 4)
    assert (training.trained[:2], done.passes, done.images) == ([(2, 1, 0), (0, 0, 0)], 4, 4 * 16)


def test_rates_of_smaller_subnets_rise_to_that_of_the_schedule_where_the_rise_ends(toy_project: Path) -> None:
    method, training = plain_training("deps", COSINE, delay=3 / STEPS, rise=4 / STEPS)
    paths: list[Any] = [(2, 1, 0), (0, 0, 0)]

    def schedule(step: int) -> float:
        return training.rate_factors(paths, step)[0]

    for step in range(STEPS):
        largest, smallest = method.rates(training, paths, step)  # type: ignore[attr-defined]
        assert largest == schedule(step)
        share = min(max(step - 2, 0) / 4, 1)
        assert smallest == pytest.approx(share * schedule(7) if share < 1 else schedule(step))


@pytest.mark.parametrize("schedule", ["cosine", "calr"])
@pytest.mark.parametrize(("step", "risen"), [(4, 0.5), (7, 1.0)])
def test_a_step_weights_each_subnets_gradient_by_its_rate(
    schedule: str, step: int, risen: float, toy_project: Path
) -> None:
    options = {"delay": 3 / STEPS, "rise": 4 / STEPS, "temperature": 2.0}
    method, training = plain_training("deps", {"schedule": schedule}, **options)
    batch = batch_of(step)

    def expected_loss(_: object) -> torch.Tensor:
        largest, *others = training.trained
        rates = training.rate_factors([largest], step)
        rates += [risen * rate for rate in training.rate_factors(others, max(step, 7))]
        teacher = (training.logits(batch, largest).detach() / 2).softmax(1)
        losses = [training.loss(batch, largest)]
        for one in others:
            losses.append(-4 * (teacher * (training.logits(batch, one) / 2).log_softmax(1)).sum(1).mean())
        return torch.stack([rate * loss for rate, loss in zip(rates, losses, strict=True)]).sum()

    expected = stepped(training, expected_loss)
    one_step(method, training, step)
    assert len(training.trained) == 4
    for now, then in zip(training.network.parameters(), expected(()), strict=True):
        assert torch.allclose(now, then, atol=1e-6)


def test_equal_passes_count_the_delay(toy_project: Path) -> None:
    method, training = plain_training("deps", delay=3 / STEPS, rise=0.0)
    made = sum(one_step(method, training, step).passes for step in range(STEPS))
    config: RunConfig = toy_config(method={"name": "deps", "delay": 3 / STEPS})
    assert made / STEPS == pytest.approx(passes_per_step(config)) == pytest.approx(3.25)


@pytest.mark.parametrize("options", [{"delay": 1.0}, {"rise": 0.6}, {"random": -1}, {"temperature": 0.0}])
def test_options_outside_their_range_are_refused(options: dict[str, Any], toy_project: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=f"method.{next(iter(options))}"):
        plain_training("deps", **options)
