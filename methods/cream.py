"""Cream (Peng et al., 2020): the best paths so far teach a drawn one, and a meta network chooses the teacher.

A board keeps prioritised paths, each with some images and its answers to them. A drawn path answers the same images;
the meta network scores the differences, and the path with the largest score teaches. ρ = sigmoid(−score) weights its
answers against the labels: (ρ·KD + (2 − ρ)·CE)/2. Every so many steps the meta network learns from the validation loss
after a step of the student, by its second-order gradient. Only the student is trained, so that CaLR and momentum
separation apply as in SPOS. Architectures are ranked by the supernet, as for every method, not taken from the board.

`meta_learning=released` is what the public code does in its place. ρ is differentiated in every step, so that the meta
network (and the student, through its answers to the board's images) follows the training loss. Before every so many
steps the student makes a real step along the gradient of ρ·KD on the first images of the batch, clipped at norm 1. The
loss of the next images of the batch is the "validation" loss; its gradient reaches the meta network through the first
tensor of the student alone, at the meta network's own rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from harness.components.method import Method, Step
from harness.components.option import added
from harness.components.registries import METHODS
from harness.components.space import Architecture
from harness.components.supernet import TwiceDifferentiable
from harness.errors import InvalidConfiguration, require

if TYPE_CHECKING:
    from torch import Tensor

    from harness.data.loader import Batch
    from harness.training.supernet import SupernetTraining

STUDENT_CLIP = 1.0
"""The greatest norm of the gradient of a student's step for the meta network, in the released code."""
CHOICES = {
    "meta_learning": ("validation", "released"),
    "meta_optimiser": ("sgd", "adam"),
    "board_answers": ("own", "teacher"),
}


@METHODS.register("cream")
@dataclass(frozen=True)
class Cream(Method):
    """One path per step, taught by the best match among the best paths so far."""

    ranks_reason: ClassVar[str | None] = (
        "its board answers images of several batches together, and batch normalisation takes the statistics of these"
    )

    board: int = 10
    """How many paths are prioritised."""
    margin: float = 5.0
    """A path enters a full board if its accuracy on the step's images is so many points above the least, or above the
    least with fewer FLOPs."""
    warm_up: float = 20 / 120
    """The share of training before the first path enters (20 of the published 120 epochs)."""
    images: int = 4
    """The number of images that the meta network compares answers on."""
    meta_every: int = 200
    """Steps between two updates of the meta network."""
    meta_rate: float = 1e-4
    """The learning rate of the meta network."""
    meta_optimiser: str = added("adam")
    """Its optimiser: Adam, or SGD with Nesterov's momentum of 0.9, as in the released code (the paper names none) and
    in presets."""
    meta_clip: float | None = added(None)
    """The greatest norm of its gradient: 1 in the released code and in presets; null for any."""
    meta_learning: str = added("validation")
    """What the meta network learns from: the validation images after a simulated step of the student, as the paper
    writes it, or what the released code does."""
    board_answers: str = added("own")
    """Whose answers a path brings to the board: its own, as the paper writes it, or its teacher's, as in the released
    code (own while the board is empty)."""
    last_score: bool = False
    """Whether ρ is taken from the score of the board's last path, not of the teacher: a defect of the released code,
    from which the published values presumably come."""

    def __post_init__(self) -> None:
        for name in ("board", "images", "meta_every"):
            if getattr(self, name) < 1:
                raise InvalidConfiguration(f"method.{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.warm_up < 1:
            raise InvalidConfiguration(f"method.warm_up must be from 0 to below 1, not {self.warm_up}")
        for name in ("meta_rate", "meta_clip"):
            value = getattr(self, name)
            require(value is None or value > 0, f"method.{name} must be above 0, not {value}")
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            require(value in allowed, f"method.{name} is {value!r}; allowed: {', '.join(allowed)}")

    def begin(self, training: SupernetTraining) -> None:
        import torch

        meta = torch.nn.Linear(self.images * training.classes, 1).to(training.device)
        training.modules["meta"] = meta
        training.modules["meta optimiser"] = (
            torch.optim.SGD(meta.parameters(), lr=self.meta_rate, momentum=0.9, nesterov=True)
            if self.meta_optimiser == "sgd"
            else torch.optim.Adam(meta.parameters(), lr=self.meta_rate)
        )
        training.memory["board"] = []
        if self.meta_learning == "released" and training.momentum.scaler.is_enabled():
            raise InvalidConfiguration(
                "Cream with method.meta_learning=released takes gradients that are not scaled; use "
                "train.precision=float32 or bfloat16"
            )

    def train_step(self, training: SupernetTraining, batch: Batch, step: int) -> Step:
        import torch
        from torch.nn import functional

        [path] = training.draw()
        images, taught, further = len(batch.labels), bool(training.memory["board"]), 0
        released, due = self.meta_learning == "released", taught and step % self.meta_every == 0
        training.clear_gradients()
        if due and released and images >= 2 * self.images:
            self.learn_as_released(training, batch, path, step)
            further = 3
        answers = training.logits(batch, path).float()
        loss = training.loss_of(answers, batch.labels)
        if taught:
            teacher, rho = self.match(training, path)
            with torch.no_grad():
                theirs = training.logits(batch, teacher).float()
                target = theirs.softmax(1)
            degree = rho if released else rho.detach()
            loss = (degree * functional.cross_entropy(answers, target) + (2 - degree) * loss) / 2
        training.backward(loss)
        if taught and released:
            training.update_own("meta optimiser")
        elif due:
            self.learn_to_match(training, batch, path, target, rho, step)
            further = 3
        if step >= self.warm_up * training.total_steps and images >= self.images:
            known = theirs if taught and self.board_answers == "teacher" else answers.detach()
            self.consider(training, batch, path, answers.detach(), known)
        training.update([path], step)
        more = further * (self.images if released else images)
        return Step(loss.detach().reshape(1), 1 + further, images + more, int(taught), taught * images)

    def match(self, training: SupernetTraining, path: Architecture) -> tuple[Architecture, Tensor]:
        """The teacher for a path, and ρ, which depends on the meta network's weights. As released, the path's answers
        are differentiated, too."""
        import torch

        board, meta = training.memory["board"], training.modules["meta"]
        assert isinstance(meta, torch.nn.Module)
        shown = torch.cat([one["images"] for one in board])
        apart = nullcontext() if self.meta_learning == "released" else torch.no_grad()
        with training.sampling(passes=1, images=len(shown)), apart:
            now = training.network(shown, path).float().softmax(1)
        scores = meta((now - torch.cat([one["answers"] for one in board])).reshape(len(board), -1))[:, 0]
        best = int(scores.argmax())
        return tuple(board[best]["path"]), torch.sigmoid(-scores[-1 if self.last_score else best])

    def consider(
        self, training: SupernetTraining, batch: Batch, path: Architecture, answers: Tensor, known: Tensor
    ) -> None:
        """Put the path on the board, with the `known` answers, if its accuracy on the batch is good enough; the worst
        leaves a full board."""
        labels = batch.labels if batch.labels.ndim == 1 else batch.labels.argmax(1)
        accuracy = 100 * (answers.argmax(1) == labels).float().mean().item()
        flops = training.space.complexity(path, "flops")
        board = training.memory["board"]
        if not self.enters(board, accuracy, flops):
            return
        shown, said = batch.images[: self.images].clone(), known[: self.images].softmax(1)
        new = {"path": path, "accuracy": accuracy, "flops": flops, "images": shown, "answers": said}
        others = [one for one in board if tuple(one["path"]) != path]
        training.memory["board"] = sorted([*others, new], key=lambda one: -one["accuracy"])[: self.board]

    def enters(self, board: Sequence[dict[str, Any]], accuracy: float, flops: int) -> bool:
        if len(board) < self.board:
            return True
        worst, most = board[-1]["accuracy"], board[-1]["flops"]
        return bool(accuracy > worst + self.margin or (accuracy > worst and flops < most))

    def learn_to_match(
        self, training: SupernetTraining, batch: Batch, path: Architecture, target: Tensor, rho: Tensor, step: int
    ) -> None:
        """Update the meta network by the gradient of the validation loss after one step of the student.

        The student's loss is CE + ρ·(KD − CE)/2 and ρ a mere weight in it, so that the derivative by ρ of the loss
        after the step w′ = w − η∇L is −η⟨∇L_val(w′), ∇(KD − CE)/2⟩: three passes, exact, without a second derivative.
        """
        import torch
        from torch.nn import functional

        weights = training.momentum.parameters
        rate = training.momentum.settings.learning_rate * training.rate_factors([path], step)[0]

        def gradient(loss: Tensor) -> list[Tensor]:
            found = torch.autograd.grad(loss, weights, allow_unused=True)
            return [torch.zeros_like(one) if own is None else own for one, own in zip(weights, found, strict=True)]

        labels = gradient(training.loss(batch, path))
        teacher = gradient(functional.cross_entropy(training.logits(batch, path).float(), target))
        half = [(one - other) / 2 for one, other in zip(teacher, labels, strict=True)]
        before = [one.detach().clone() for one in weights]
        with torch.no_grad():
            for one, own, other in zip(weights, labels, half, strict=True):
                one.sub_(rate * (own + rho.detach() * other))
        after = gradient(training.loss(training.validation.batch(step), path))
        _assign(weights, before)
        slope = -rate * sum(torch.dot(one.flatten(), other.flatten()) for one, other in zip(after, half, strict=True))
        training.backward(rho * slope)
        training.update_own("meta optimiser", clip=self.meta_clip)

    def learn_as_released(self, training: SupernetTraining, batch: Batch, path: Architecture, step: int) -> None:
        """A real step of the student along ρ·KD, and one of the meta network by the loss of further images after it."""
        import torch
        from torch.nn import functional

        from harness.training.separation import clip_norm

        meta: Any = training.modules["meta"]
        network, weights = training.network, [one for one in training.network.parameters() if one.requires_grad]
        first, second = (
            batch._replace(images=batch.images[part], labels=batch.labels[part], indices=batch.indices[part])
            for part in (slice(self.images), slice(self.images, 2 * self.images))
        )

        def distilled() -> Tensor:
            teacher, rho = self.match(training, path)
            with torch.no_grad():
                target = training.logits(first, teacher).float().softmax(1)
            return rho * functional.cross_entropy(training.logits(first, path).float(), target)

        before = [one.detach().clone() for one in weights]
        for one, gradient in zip(weights, torch.autograd.grad(distilled(), weights, allow_unused=True), strict=True):
            one.grad = gradient
        active = [one for one in weights if one.grad is not None]
        if not active:  # a path that is zero throughout
            return
        clip_norm([one.grad for one in active if one.grad is not None], STUDENT_CLIP)
        training.update([path], step)
        training.clear_gradients()
        (after,) = torch.autograd.grad(training.loss(second, path), active[0], materialize_grads=True)
        # The graph of the student's gradient is that of the weights before the step.
        stepped = [one.detach().clone() for one in weights]
        _assign(weights, before)
        with network.twice_differentiable() if isinstance(network, TwiceDifferentiable) else nullcontext():
            (gradient,) = torch.autograd.grad(distilled(), active[0], create_graph=True)
            found = torch.autograd.grad(gradient, list(meta.parameters()), -self.meta_rate * after)
        _assign(weights, stepped)
        for one, gradient in zip(meta.parameters(), found, strict=True):
            one.grad = gradient
        training.update_own("meta optimiser", clip=self.meta_clip)


def _assign(weights: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    import torch

    with torch.no_grad():
        for one, value in zip(weights, values, strict=True):
            one.copy_(value)
