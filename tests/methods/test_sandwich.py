"""The sandwich rule: the α-divergence and its clipping against slow references, and the step of four paths."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from harness.components.discovery import component
from harness.components.registries import SPACES
from tests.methods.plain_steps import batch_of, one_step, plain_training, stepped

sandwich = component("methods.sandwich")
Sandwich = sandwich.Sandwich


def slow_divergence(student: torch.Tensor, teacher: torch.Tensor, alpha: float, clip: float) -> float:
    """Σ q·f(p/q) of one image, class by class."""
    q, p = student.softmax(0).tolist(), teacher.softmax(0).tolist()
    if alpha == 1:
        return float(sum(one * math.log(one / other) for one, other in zip(p, q, strict=True)))
    powers = [min((one / other) ** alpha, clip) for one, other in zip(p, q, strict=True)]
    return float(sum(other * (power - 1) for power, other in zip(powers, q, strict=True)) / (alpha * (alpha - 1)))


def answers(seed: int, spread: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    student, teacher = (spread * torch.randn(8, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    return student.requires_grad_(), teacher


@pytest.mark.parametrize("alpha", [-1.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_the_divergence_is_that_of_the_definition_and_so_is_its_gradient(alpha: float, spread: float) -> None:
    student, teacher = answers(1, spread)
    value, loss = sandwich.alpha_divergence(student, teacher, alpha, math.inf)
    expected = [slow_divergence(*pair, alpha, math.inf) for pair in zip(student.detach(), teacher, strict=True)]
    assert value.tolist() == pytest.approx(expected, rel=1e-9)
    [gradient] = torch.autograd.grad(loss.sum(), student)
    p, q = teacher.softmax(1), student.softmax(1)
    terms = p * (p / q).log() if alpha == 1 else q * ((p / q) ** alpha - 1) / (alpha * (alpha - 1))
    [wanted] = torch.autograd.grad(terms.sum(), student)
    assert torch.allclose(gradient, wanted, rtol=1e-6, atol=1e-9)


def test_the_ratio_is_clipped_in_value_and_gradient() -> None:
    student, teacher = answers(2, 4.0)
    value, loss = sandwich.alpha_divergence(student, teacher, -1.0, 5.0)
    expected = [slow_divergence(*pair, -1.0, 5.0) for pair in zip(student.detach(), teacher, strict=True)]
    assert value.tolist() == pytest.approx(expected, rel=1e-9)
    free = sandwich.alpha_divergence(student, teacher, -1.0, math.inf)
    assert (value < free[0]).any() and (free[0] > 5).any() and (value <= (5 - 1) / 2).all()
    [gradient] = torch.autograd.grad(loss.sum(), student)
    q, ratio = student.softmax(1).detach(), (teacher.softmax(1) / student.softmax(1)).detach()
    slope = -(1 / ratio).clamp(max=5) + 0.5
    wanted = -(q * slope) + q * (q * slope).sum(1, keepdim=True)  # Σ q·ρ·∇ln q by the student's logits
    assert torch.allclose(gradient, wanted)


def test_each_image_follows_its_larger_divergence() -> None:
    student, teacher = answers(3, 2.0)
    low, high = (sandwich.alpha_divergence(student, teacher, alpha, 5.0) for alpha in (-1.0, 1.0))
    pairs = zip(*low, *high, strict=True)
    chosen = [mine if divergence > other else its for divergence, mine, other, its in pairs]
    assert any(a > b for a, b in zip(low[0], high[0], strict=True))
    assert any(a < b for a, b in zip(low[0], high[0], strict=True))
    assert torch.allclose(Sandwich().divergence(student, teacher), torch.stack(chosen).mean())


def test_a_step_trains_the_largest_with_labels_and_the_others_with_its_answers(toy_project: Path) -> None:
    method, training = plain_training("sandwich")
    batch = batch_of(0)

    def expected_loss(_: object) -> torch.Tensor:
        largest, *students = training.trained
        teacher = training.logits(batch, largest).detach()
        distances = [method.divergence(training.logits(batch, one), teacher) for one in students]  # type: ignore[attr-defined]
        return training.loss(batch, largest) + sum(distances)  # type: ignore[no-any-return]

    expected = stepped(training, expected_loss)
    done = one_step(method, training, 0)
    assert (training.trained[0], training.trained[-1], done.passes) == ((2, 1, 0), (0, 0, 0), 4)
    for now, then in zip(training.network.parameters(), expected(()), strict=True):
        assert torch.allclose(now, then, atol=1e-6)


def test_the_ends_are_the_smallest_connected_and_the_largest_subnet() -> None:
    space = SPACES.get("nasbench201")()
    assert sandwich.ends(space) == ((0, 0, 0, 1, 0, 0), (3,) * 6)  # a skip from input to output
    reduced = SPACES.get("mobilenet-reduced")()
    assert sandwich.ends(reduced) == (reduced.extremes()[1], reduced.extremes()[3])
