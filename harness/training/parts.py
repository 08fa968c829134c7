"""A batch in parts: groups of images for batch normalisation, and the parts of a batch that several ranks have.

Batch normalisation takes its statistics over groups of images (`train.bn_group`). One process normalises the groups of
its batch one by one; a rank has some of the groups, or ranks share one and exchange sums with their gradient. So the
number of groups is part of a trial's identity and the number of ranks is not. Groups are taken in training steps only:
an evaluation normalises as ever.

Running statistics advance once per pass, by the mean over all groups.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from harness.components.loader import Batch, BatchPart, Share
from harness.errors import InvalidConfiguration
from harness.training.ranks import ALONE, Ranks


@dataclass(frozen=True, eq=False)
class Division:
    """How the batches of a training are divided."""

    groups: int = 1
    """Groups of batch normalisation in a whole batch."""
    ranks: Ranks = ALONE

    @property
    def trivial(self) -> bool:
        """Whether a batch is one group of one process."""
        return self.groups == 1 and self.ranks.size == 1

    @property
    def share(self) -> Share:
        """The part of a batch that this rank has."""
        return Share(self.ranks.index, self.ranks.size, self.groups, lambda value: self.ranks.sums([value])[0])

    @property
    def here(self) -> int:
        """Groups in this rank's part."""
        return max(1, self.groups // self.ranks.size)

    @property
    def across(self) -> Ranks:
        """The ranks that share a group with this one."""
        return self.ranks.near(max(1, self.ranks.size // self.groups))

    def prepare(self, network: nn.Module) -> None:
        """Make a network normalise by groups. Raises `InvalidConfiguration` if its draws depend on the ranks."""
        if self.trivial:
            return
        if self.ranks.size > 1:
            for module in network.modules():
                unseen = isinstance(module, _DropoutNd) and module.p > 0
                if unseen or (getattr(module, "stochastic", False) and not getattr(module, "draws_per_image", False)):
                    raise InvalidConfiguration(
                        f"{type(module).__name__} draws random numbers for its part of a batch, and one process draws "
                        "others for the whole batch: --ranks 1 trains it. A network whose draws come from "
                        "harness.training.parts.per_image says so by `draws_per_image = True`"
                    )
        _ = self.across  # all ranks make the groups of processes together, here
        for module in network.modules():
            if isinstance(module, _BatchNorm) and not isinstance(module, _InGroups):
                kind: Any = type(module)
                module.__class__ = _in_groups(kind)

    def weight(self, batch: Batch, present: Batch | None = None) -> float:
        """The share of a batch's images that this rank has; `present` is the batch of the step."""
        if self.ranks.size == 1:
            return 1.0
        if isinstance(batch, BatchPart):
            return batch.weight
        if isinstance(present, BatchPart) and len(present.labels) == len(batch.labels):
            return present.weight
        raise InvalidConfiguration(
            f"a batch of {len(batch.labels)} images, and the ranks do not know of how many it is a part: take batches "
            "from the loaders of the training, and change them by batch._replace(...)"
        )


WHOLE = Division()


@dataclass
class _Step:
    """A training step under way."""

    division: Division
    part: Batch | None
    tracked: list[tuple[Any, float, Tensor, Tensor]] = field(default_factory=list)
    """Running statistics that wait for the sums of all ranks: module, factor, mean and variance."""

    def track(self, norm: Any, mean: Tensor, variance: Tensor) -> None:
        norm.num_batches_tracked.add_(1)
        factor = 1 / int(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
        self.tracked.append((norm, factor, mean, variance))
        if self.division.ranks.size == 1:
            self.settle()

    @torch.no_grad()
    def settle(self) -> None:
        """Advance the running statistics, in the order in which they were taken."""
        ranks = self.division.ranks
        ranks.sum_([one for _, _, *both in self.tracked for one in both])
        for norm, factor, *both in self.tracked:
            for running, new in zip((norm.running_mean, norm.running_var), both, strict=True):
                running.lerp_(new.div_(ranks.size).to(running.dtype), factor)
        self.tracked.clear()


_steps: list[_Step | None] = [None]
"""The step under way comes last; None where batches are not divided."""


@contextlib.contextmanager
def divided(division: Division, part: Batch | None = None) -> Iterator[None]:
    """Context of a training step on that part of a batch: networks in training mode normalise by groups."""
    if division.trivial:
        yield
        return
    step = _Step(division, part)
    _steps.append(step)
    try:
        yield
    finally:
        _steps.pop()
    if step.tracked:
        step.settle()


@contextlib.contextmanager
def undivided() -> Iterator[None]:
    """Context in which batches are not divided, within a step: of an evaluation that every rank makes by itself."""
    _steps.append(None)
    try:
        yield
    finally:
        _steps.pop()


def groups_here() -> int | None:
    """Into how many groups a batch is divided now; None if it shares a group with the batches of other ranks."""
    step = _steps[-1]
    if step is None:
        return 1
    return step.division.here if step.division.across.size == 1 else None


def per_image(x: Tensor, draw: Callable[[int], Tensor]) -> Tensor:
    """A random row per image of x: `draw` makes as many as it is told, and each rank takes those of its images."""
    step = _steps[-1]
    if step is None or step.division.ranks.size == 1:
        return draw(len(x))
    part = step.part
    if not isinstance(part, BatchPart) or len(x) != len(part.labels):
        raise InvalidConfiguration("a network that draws random numbers has images that are not those of the step")
    return draw(part.whole)[part.start : part.start + len(x)]


def batch_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float = 1e-5) -> Tensor:
    """Batch normalisation in training, by groups where batches are divided; without running statistics."""
    step = _steps[-1]
    if step is None:
        return functional.batch_norm(x, None, None, weight, bias, True, 0.0, epsilon)
    return _normalised(step.division, x, weight, bias, epsilon, None)[0]


Statistics = tuple[Tensor, Tensor]


def _normalised(
    division: Division, x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float, like: Tensor | None
) -> tuple[Tensor, Statistics | None]:
    """The normalised images, and the mean over groups of mean and unbiased variance if there is a tensor `like` it."""
    if division.across.size > 1:
        return _across(division.across, x, weight, bias, epsilon, like)
    found, means, variances = [], [], []
    for group in x.tensor_split(division.here):
        mean, variance = (None, None) if like is None else (torch.zeros_like(like), torch.ones_like(like))
        # With a factor of 1, running statistics are those of the group.
        found.append(functional.batch_norm(group, mean, variance, weight, bias, True, 1.0, epsilon))
        if mean is not None and variance is not None:
            means.append(mean)
            variances.append(variance)
    y = found[0] if len(found) == 1 else torch.cat(found)
    return y, (torch.stack(means).mean(0), torch.stack(variances).mean(0)) if means else None


def _across(
    ranks: Ranks, x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float, like: Tensor | None
) -> tuple[Tensor, Statistics | None]:
    """The same for a group that several ranks share."""
    y, mean, variance, total = _Shared.apply(x, weight, bias, epsilon, ranks)
    # Copies: running statistics are summed in place, and the gradient needs the mean.
    return y, None if like is None else (mean.clone(), variance * (total / (total - 1)))


class _Shared(torch.autograd.Function):
    """Batch normalisation of a group that several ranks share; can be differentiated twice.

    It moves the activation 15 times through memory, forwards and backwards together; written as plain operations with
    their own gradients it would do so 46 times. There is one exchange in each direction.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float, ranks: Ranks
    ) -> tuple[Tensor, ...]:
        mean, variance, total = _statistics(ranks, x)
        inverse = (variance + epsilon).rsqrt()
        ctx.ranks, ctx.epsilon = ranks, epsilon
        ctx.save_for_backward(x, weight, mean, inverse, total)
        ctx.mark_non_differentiable(mean, variance, total)
        factor = inverse if weight is None else inverse * weight
        shift = -mean * factor if bias is None else bias - mean * factor
        shape = _per_channel(x)
        y = torch.addcmul(shift.view(shape), x.to(factor.dtype), factor.view(shape))
        return y.to(x.dtype), mean, variance, total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, weight, mean, inverse, total = ctx.saved_tensors
        if torch.is_grad_enabled():  # to be differentiated again: the statistics depend on the images, too
            mean, variance, total = _statistics(ctx.ranks, x)
            inverse = (variance + ctx.epsilon).rsqrt()
        shape, over = _per_channel(x), _all_but_channels(x)
        gradient = gradients[0].to(mean.dtype)
        centred = x.to(mean.dtype) - mean.view(shape)
        own = torch.stack((gradient.sum(over), (gradient * centred).sum(over)))
        of_images = None
        if ctx.needs_input_grad[0]:
            constant, along = (ctx.ranks.total(own) / total).unbind()
            factor = inverse if weight is None else inverse * weight
            sloped = torch.addcmul(gradient, centred, (-along * inverse.square()).view(shape))
            of_images = torch.addcmul((-constant * factor).view(shape), sloped, factor.view(shape)).to(x.dtype)
        of_weight = own[1] * inverse if ctx.needs_input_grad[1] else None
        return of_images, of_weight, own[0] if ctx.needs_input_grad[2] else None, None, None


def _statistics(ranks: Ranks, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance per channel of the parts of all ranks, and how many values each is of."""
    variance, mean = torch.var_mean(
        x.to(torch.promote_types(x.dtype, torch.float32)), _all_but_channels(x), correction=0
    )
    own = torch.cat((mean, variance, mean.new_full((1,), x.numel() // x.shape[1])))
    place = torch.arange(ranks.size, device=x.device) == ranks.index
    rows = ranks.total(place[:, None].to(own.dtype) * own)
    means, variances, counts = rows.split([len(mean), len(mean), 1], 1)  # type: ignore[no-untyped-call]
    counts = counts.detach()
    total = counts.sum()
    mean = (counts * means).sum(0) / total
    return mean, (counts * (variances + (means - mean).square())).sum(0) / total, total


def _all_but_channels(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


def _per_channel(x: Tensor) -> list[int]:
    """The shape that a value per channel has beside x."""
    return [1, -1, *[1] * (x.dim() - 2)]


class _InGroups(_BatchNorm):
    """Batch normalisation that takes its statistics over the groups of a step."""

    def forward(self, x: Tensor) -> Tensor:
        step = _steps[-1]
        if step is None or not self.training:
            return super().forward(x)
        self._check_input_dim(x)  # type: ignore[no-untyped-call]
        y, statistics = _normalised(step.division, x, self.weight, self.bias, self.eps, self.running_mean)
        if statistics is not None:
            step.track(self, *statistics)
        return y


@cache
def _in_groups(kind: Any) -> Any:
    """The kind of batch normalisation, by groups. Modules change their class and keep all that they hold."""
    return type(kind.__name__, (_InGroups, kind), {"__module__": kind.__module__})
