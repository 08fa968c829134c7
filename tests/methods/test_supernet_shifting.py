"""Supernet Shifting: the schedule before the evolution, its generations, and its steps against slow references."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from harness.components.discovery import component
from harness.components.method import Method
from harness.errors import InvalidConfiguration
from harness.training.supernet import SupernetTraining
from tests.methods.plain_steps import PLAIN, batch_of, one_step, plain_training, stepped

STEPS, FIRST = 12, 4
"""Of `plain_training`, and the first one of the evolution."""
FEW: dict[str, Any] = {"population": 3, "parents": 2, "mutations": 1, "crossovers": 1, "batches": 2}


def shifting(sections: dict[str, Any] | None = None, **options: Any) -> tuple[Method, SupernetTraining]:
    method, training = plain_training("supernet-shifting", sections, share=1 - FIRST / STEPS, **FEW | options)
    assert training.total_steps == STEPS and method.shifts_from(training) == FIRST  # type: ignore[attr-defined]
    return method, training


def accuracy(training: SupernetTraining, path: Any) -> float:
    batches = [training.validation.batch(number) for number in range(2)]
    training.network.eval()
    with torch.no_grad():
        right = [(training.network(one.images, path).argmax(1) == one.labels).float() for one in batches]
    training.network.train()
    return 100 * float(torch.cat(right).mean())


def test_the_schedule_ends_where_the_evolution_begins_and_the_evolution_has_a_constant_rate(toy_project: Path) -> None:
    method, training = shifting({"schedule": "cosine", "optimiser": PLAIN}, steps=1, rate=0.25)
    for step in range(FIRST + 2):
        batch = batch_of(step)
        progress = min((step + training.first_step) / FIRST, 1.0)
        expected = stepped(training, lambda path, batch=batch: training.loss(batch, path))  # type: ignore[misc]
        before = [one.detach().clone() for one in training.network.parameters()]
        done = one_step(method, training, step)
        [path] = training.trained
        factor = training.factor(path, progress) if step < FIRST else 0.25
        wanted = [old + factor * (new - old) for old, new in zip(before, expected(path), strict=True)]
        for now, then in zip(training.network.parameters(), wanted, strict=True):
            assert torch.allclose(now, then, atol=1e-6)
        assert (done.passes, done.images) == (1, len(batch.labels))


def test_each_candidate_trains_before_it_is_scored_and_the_best_have_children(toy_project: Path) -> None:
    method, training = shifting(steps=2, rate=1.0)
    for step in range(FIRST):
        one_step(method, training, step)
    assert method.found(training) == [] and "evolution" not in training.memory
    made, before = [], training.sampled.passes
    for step in range(FIRST, FIRST + 6):
        one_step(method, training, step)
        made += training.trained
        if step % 2:
            [score] = [one["accuracy"] for one in training.memory["evolution"]["scored"] if one["path"] == made[-1]]
            assert score == pytest.approx(accuracy(training, made[-1]))  # with the weights after its own steps
    assert made[0::2] == made[1::2] and len(set(made)) == 3
    assert training.sampled.passes - before == 3 * 2
    for one, given in zip(training.memory["evolution"]["scored"], (20.0, 40.0, 30.0), strict=True):
        one["accuracy"] = given  # those of the toy may be equal
    scored = {tuple(one["path"]): one["accuracy"] for one in training.memory["evolution"]["scored"]}
    best = sorted(scored, key=lambda one: -scored[one])
    assert method.found(training) == best[:1]
    asked: list[Any] = []
    evolution: Any = component("methods.supernet_shifting").Evolution
    plain = evolution.children

    def children(self: Any, *given: Any) -> Any:
        asked.append(given)
        return plain(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evolution, "children", children)
        one_step(method, training, FIRST + 6)
    [(parents, _, _, limits, born)] = asked
    assert parents == best[:2] and limits.ranges == {}
    assert len(born) == len(training.memory["evolution"]["waiting"]) == 3  # none is excluded for having been scored


@pytest.mark.parametrize(
    "options", [{"share": 1.0}, {"rate": -1.0}, {"steps": 0}, {"mutations": 3}, {"probability": 0.0}]
)
def test_options_outside_their_range_are_refused(options: dict[str, Any], toy_project: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=f"method.{next(iter(options))}"):
        plain_training("supernet-shifting", **FEW | options)
