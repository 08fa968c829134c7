"""Cream: the board's rules, the teacher and ρ, and the meta network's gradient against slow references."""

from __future__ import annotations

import math
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.func import functional_call
from torch.nn import functional

from harness.components.registries import DATASETS
from harness.components.space import Architecture
from harness.data.loader import Batch
from harness.errors import InvalidConfiguration
from harness.training.supernet import SupernetTraining
from tests.methods.plain_steps import RATE, batch_of, one_step, plain_training, stepped

NESTEROV: dict[str, Any] = {"meta_optimiser": "sgd", "meta_clip": 1.0}
RELEASED: dict[str, Any] = NESTEROV | {"meta_learning": "released"}


def considered(training: SupernetTraining, method: Any, batch: Batch, path: Architecture, correct: int) -> None:
    """As if the path had answered so many of 16 images correctly."""
    right = functional.one_hot(batch.labels, 10).float()
    wrong = functional.one_hot((batch.labels + 1) % 10, 10).float()
    answers = torch.cat([right[:correct], wrong[correct:]])
    method.consider(training, batch, path, answers, answers)


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
        patch.setattr(training, "update_own", lambda name, clip: found.extend([meta.weight.grad, meta.bias.grad]))
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


def test_the_meta_networks_optimiser_is_the_released_ones(toy_project: Path) -> None:
    """Nesterov's momentum, no decay, gradients clipped; or Adam, without."""
    method, training = plain_training(
        "cream", **NESTEROV | {"meta_clip": 1e-6}, meta_every=1, meta_rate=1e4, warm_up=0.9
    )
    with_board(training, method)
    meta: Any = training.modules["meta"]
    before = torch.cat([one.detach().flatten().clone() for one in meta.parameters()])
    one_step(method, training, 1)
    moved = torch.cat([one.detach().flatten() for one in meta.parameters()]) - before
    assert float(moved.norm()) == pytest.approx(1e4 * 1.9 * 1e-6, rel=0.05)  # the gradient's own norm is 5e-5
    method, training = plain_training("cream", meta_every=1, meta_rate=0.01, warm_up=0.9)
    with_board(training, method)
    meta = training.modules["meta"]
    before = meta.weight.detach().clone()
    one_step(method, training, 1)
    assert float((meta.weight - before).abs().max()) == pytest.approx(0.01, rel=1e-2)


@pytest.mark.parametrize("whose", ["own", "teacher"])
def test_the_board_keeps_own_answers_or_those_of_the_teacher(whose: str, toy_project: Path) -> None:
    method, training = plain_training("cream", board_answers=whose, warm_up=0.0, meta_every=100)
    differ = False
    for step in range(8):
        board, batch = list(training.memory["board"]), batch_of(step)
        weights = {name: one.detach().clone() for name, one in training.network.named_parameters()}
        one_step(method, training, step)
        [path] = training.trained
        [new] = [one for one in training.memory["board"] if not any(one is old for old in board)]
        if board and whose == "teacher":
            with pytest.MonkeyPatch.context() as patch:
                patch.setitem(training.memory, "board", board)
                now = {name: one.detach().clone() for name, one in training.network.named_parameters()}
                training.network.load_state_dict(weights, strict=False)
                path, _ = method.match(training, path)  # type: ignore[attr-defined]
                training.network.load_state_dict(now, strict=False)
        answers = functional_call(training.network, weights, (batch.images, path)).softmax(1)
        assert torch.allclose(new["answers"], answers[:4], atol=1e-6)
        own = functional_call(training.network, weights, (batch.images, training.trained[0])).softmax(1)
        differ |= not torch.allclose(new["answers"], own[:4], atol=1e-3)
    assert differ == (whose == "teacher")


def released(training: SupernetTraining, method: Any, weights: dict[str, torch.Tensor], path: Architecture) -> Any:
    """The teacher and ρ as functions of the student's weights and of the meta network."""
    board, meta = training.memory["board"], training.modules["meta"]
    assert isinstance(meta, torch.nn.Module)
    shown = torch.cat([one["images"] for one in board])
    now = functional_call(training.network, weights, (shown, path)).softmax(1)
    scores = meta((now - torch.cat([one["answers"] for one in board])).reshape(len(board), -1))[:, 0]
    best = int(scores.argmax())
    return board[best]["path"], torch.sigmoid(-scores[best])


def test_as_released_rho_is_differentiated_in_every_step(toy_project: Path) -> None:
    method, training = plain_training("cream", **RELEASED, meta_every=100, warm_up=0.9, meta_rate=500.0)
    with_board(training, method)
    meta: Any = training.modules["meta"]
    batch, names = batch_of(1), [name for name, _ in training.network.named_parameters()]
    start = [one.detach().clone() for one in (*training.network.parameters(), *meta.parameters())]
    one_step(method, training, 1)
    [path] = training.trained
    later = [one.detach().clone() for one in (*training.network.parameters(), *meta.parameters())]
    with torch.no_grad():
        for one, value in zip((*training.network.parameters(), *meta.parameters()), start, strict=True):
            one.copy_(value)
    weights: dict[str, torch.Tensor] = dict(zip(names, training.network.parameters(), strict=True))
    teacher, rho = released(training, method, weights, path)
    target = training.logits(batch, teacher).softmax(1).detach()
    logits = training.logits(batch, path)
    loss = (rho * functional.cross_entropy(logits, target) + (2 - rho) * training.loss_of(logits, batch.labels)) / 2
    own = [*weights.values(), *meta.parameters()]
    slopes = torch.autograd.grad(loss, own, materialize_grads=True, allow_unused=True)
    rates = [RATE] * len(weights) + [500 * 1.9] * 2
    for one, slope, rate, now in zip(start, slopes, rates, later, strict=True):
        assert torch.allclose(one - rate * slope, now, atol=1e-5)
    assert float((later[-2] - start[-2]).abs().max()) > 1e-4


def test_as_released_the_student_steps_on_four_images_and_the_next_four_teach_the_meta_network(
    toy_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, training = plain_training("cream", **RELEASED | {"meta_clip": 1e9}, meta_every=1, meta_rate=0.5)
    with_board(training, method)
    meta: Any = training.modules["meta"]
    batch, path = batch_of(1), (2, 0, 1)
    names = [name for name, _ in training.network.named_parameters()]
    copies = {name: one.detach().clone().requires_grad_() for name, one in training.network.named_parameters()}
    head = [one.detach().clone() for one in meta.parameters()]
    teacher, rho = released(training, method, copies, path)
    target = functional_call(training.network, copies, (batch.images[:4], teacher)).softmax(1).detach()
    distilled = rho * functional.cross_entropy(
        functional_call(training.network, copies, (batch.images[:4], path)), target
    )
    slopes = torch.autograd.grad(distilled, list(copies.values()), create_graph=True, allow_unused=True)
    norm = torch.cat([one.flatten() for one in slopes if one is not None]).norm().item()
    monkeypatch.setattr(sys.modules[type(method).__module__], "STUDENT_CLIP", norm / 2)
    scale = norm / 2 / (norm + 1e-6)
    stepped = {
        name: one.detach() if slope is None else (one - RATE * scale * slope).detach().requires_grad_()
        for (name, one), slope in zip(copies.items(), slopes, strict=True)
    }
    place = next(place for place, one in enumerate(slopes) if one is not None)
    logits = functional_call(training.network, stepped, (batch.images[4:8], path))
    (after,) = torch.autograd.grad(functional.cross_entropy(logits, batch.labels[4:8]), stepped[names[place]])
    wanted = torch.autograd.grad(slopes[place], list(meta.parameters()), -0.5 * after)
    method.learn_as_released(training, batch, path, 1)  # type: ignore[attr-defined]
    for one, value in zip(training.network.parameters(), stepped.values(), strict=True):
        assert torch.allclose(one, value, atol=1e-6)
    for one, value, slope in zip(meta.parameters(), head, wanted, strict=True):
        assert torch.allclose(one, value - 0.5 * 1.9 * slope, atol=1e-7)
    assert float(wanted[0].abs().max()) > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"meta_learning": "some"}, "method.meta_learning is 'some'; allowed: validation, released"),
        ({"meta_optimiser": "lion"}, "method.meta_optimiser is 'lion'; allowed: sgd, adam"),
        ({"board_answers": "mine"}, "method.board_answers is 'mine'; allowed: own, teacher"),
        ({"meta_clip": 0}, "method.meta_clip must be above 0, not 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str, toy_project: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=message):
        plain_training("cream", **options)
