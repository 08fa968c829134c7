"""Cream: the board's rules, the teacher and ρ, and the meta network's gradient against slow references."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.func import functional_call
from torch.nn import functional

from harness.components.registries import DATASETS
from harness.components.space import Architecture
from harness.data.loader import Batch
from harness.training.supernet import SupernetTraining
from tests.methods.plain_steps import RATE, batch_of, one_step, plain_training, stepped


def considered(training: SupernetTraining, method: Any, batch: Batch, path: Architecture, correct: int) -> None:
    """As if the path had answered so many of 16 images correctly."""
    right = functional.one_hot(batch.labels, 10).float()
    wrong = functional.one_hot((batch.labels + 1) % 10, 10).float()
    method.consider(training, batch, path, torch.cat([right[:correct], wrong[correct:]]))


def test_the_boards_rules(toy_project: Path) -> None:
    method, training = plain_training("cream", board=3, margin=20.0)
    rng, batch = random.Random(0), batch_of(0)
    slow: list[tuple[float, Architecture, int]] = []
    for _ in range(200):
        path, correct = training.space.sample(rng), rng.randrange(17)
        considered(training, method, batch, path, correct)
        accuracy, flops = 100 * correct / 16, training.space.complexity(path)
        if len(slow) < 3:
            enters = True
        else:
            worst = min(slow, key=lambda one: one[0])
            tied = [one for one in slow if one[0] == worst[0]]
            enters = accuracy > worst[0] + 20 or (accuracy > worst[0] and flops < tied[-1][2])
        if enters:
            slow = [one for one in slow if one[1] != path] + [(accuracy, path, flops)]
            slow.sort(key=lambda one: -one[0])
            slow = slow[:3]
        board = training.memory["board"]
        assert [(one["accuracy"], one["path"], one["flops"]) for one in board] == slow


def with_board(training: SupernetTraining, method: Any) -> list[dict[str, Any]]:
    for number, path in enumerate([(1, 0, 0), (2, 1, 1), (1, 1, 0)]):
        considered(training, method, batch_of(0), path, 9 - number)
    board: list[dict[str, Any]] = training.memory["board"]
    for number, one in enumerate(board):
        one["images"] = batch_of(number).images[:4]
    return board


@pytest.mark.parametrize("last", [False, True])
def test_the_teacher_has_the_largest_score_and_rho_is_its_sigmoid(last: bool, toy_project: Path) -> None:
    method, training = plain_training("cream", last_score=last)
    board, path = with_board(training, method), (2, 0, 1)
    meta: Any = training.modules["meta"]
    teachers = set()
    for seed in range(8):
        torch.nn.init.normal_(meta.weight, generator=torch.Generator().manual_seed(seed))
        scores = []
        for one in board:  # path by path, number by number
            difference = (training.network(one["images"], path).softmax(1) - one["answers"]).flatten().tolist()
            terms = zip(meta.weight[0].tolist(), difference, strict=True)
            scores.append(sum(weight * number for weight, number in terms) + meta.bias.item())
        teacher, rho = method.match(training, path)  # type: ignore[attr-defined]
        best = max(range(3), key=lambda place: scores[place])
        teachers.add(teacher)
        assert teacher == board[best]["path"]
        assert float(rho) == pytest.approx(1 / (1 + math.exp(scores[-1 if last else best])), rel=1e-3)
    assert len(teachers) > 1
    assert (training.sampled.passes, training.sampled.images) == (8, 8 * 12)


def test_a_step_weights_the_teachers_answers_by_rho(toy_project: Path) -> None:
    method, training = plain_training("cream", meta_every=100, warm_up=0.9)
    with_board(training, method)
    batch = batch_of(1)

    def expected_loss(path: Architecture) -> torch.Tensor:
        teacher, rho = method.match(training, path)  # type: ignore[attr-defined]
        target = training.logits(batch, teacher).softmax(1).detach()
        own = training.loss(batch, path)
        distilled = -(target * training.logits(batch, path).log_softmax(1)).sum(1).mean()
        return (rho.detach() * distilled + (2 - rho.detach()) * own) / 2  # type: ignore[no-any-return]

    expected = stepped(training, expected_loss)
    done = one_step(method, training, 1)
    assert (done.passes, done.forward_passes, done.forward_images) == (1, 1, 16)
    for now, then in zip(training.network.parameters(), expected(training.trained[0]), strict=True):
        assert torch.allclose(now, then, atol=1e-6)


def test_the_meta_networks_gradient_is_that_of_the_loss_after_the_students_step(toy_project: Path) -> None:
    method, training = plain_training("cream", meta_every=1)
    with_board(training, method)
    network, path, step = training.network, (2, 0, 1), 1
    batch, held_out = batch_of(step), training.validation.batch(step)
    meta: Any = training.modules["meta"]
    teacher, rho = method.match(training, path)  # type: ignore[attr-defined]
    target = training.logits(batch, teacher).softmax(1).detach()
    # Slowly: differentiate through the student's step.
    weights: dict[str, torch.Tensor] = dict(network.named_parameters())
    logits = functional_call(network, weights, (batch.images, path))
    loss = (rho * functional.cross_entropy(logits, target) + (2 - rho) * training.loss_of(logits, batch.labels)) / 2
    gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True, allow_unused=True)
    later = {
        name: one if own is None else one - RATE * own
        for (name, one), own in zip(weights.items(), gradients, strict=True)
    }
    after = functional.cross_entropy(functional_call(network, later, (held_out.images, path)), held_out.labels)
    wanted = torch.autograd.grad(after, [meta.weight, meta.bias])
    found: list[torch.Tensor] = []
    before = [one.detach().clone() for one in network.parameters()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "update_own", lambda name: found.extend([meta.weight.grad, meta.bias.grad]))
        _, rho = method.match(training, path)  # type: ignore[attr-defined]
        method.learn_to_match(training, batch, path, target, rho, step)  # type: ignore[attr-defined]
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-9) and other.abs().max() > 0
    assert all(map(torch.equal, network.parameters(), before))  # the student's step was taken back


def test_before_the_board_has_paths_it_is_spos_and_the_meta_network_learns_later(toy_project: Path) -> None:
    method, training = plain_training("cream", warm_up=0.5, meta_every=2)
    spos, other = plain_training("spos")
    meta: Any = training.modules["meta"]
    first = meta.weight.detach().clone()
    for step in range(12):
        done, _ = one_step(method, training, step), one_step(spos, other, step)
        same = all(map(torch.equal, training.network.parameters(), other.network.parameters()))
        assert same == (step <= 6) and bool(training.memory["board"]) == (step >= 6)
        assert done.passes == (4 if step in (8, 10) else 1)
    assert not torch.equal(first, meta.weight)
    assert len(DATASETS.get("toy")().train) == 40 and len(training.memory["board"]) <= 6
