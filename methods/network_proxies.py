"""Zero-cost proxies: scores of a stand-alone network with its initial weights, on one batch.

Each docstring gives the definition and its publication. Where released code and text differ, the text counts, unless it
is said otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from harness.components.proxy import Initial, NetworkProxy, NotApplicable, Proxy, Scene, Scores
from harness.components.registries import PROXIES
from harness.components.space import Architecture

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PERTURBATION = 0.01
"""The size of Zen's perturbation of its input (Lin et al., 2021)."""


@PROXIES.register("convolutions-3x3")
class Convolutions(NetworkProxy):
    """The number of convolutions with a kernel of 3×3 in the stand-alone network."""

    label: ClassVar[str] = "Number of 3×3 convolutions"
    order: ClassVar[int] = 4

    def score(self, initial: Initial) -> float:
        from torch import nn

        found = [module for module in initial.network.modules() if isinstance(module, nn.Conv2d)]
        if not found:
            raise NotApplicable("the networks have no convolutions")
        return sum(module.kernel_size == (3, 3) for module in found)


@PROXIES.register("grad-norm")
class GradNorm(NetworkProxy):
    """The sum of the Euclidean norms of the gradients of all weights (Abdelfattah et al., 2021)."""

    label: ClassVar[str] = "Gradient norm"
    order: ClassVar[int] = 10

    def score(self, initial: Initial) -> float:
        return sum(float(gradient.norm()) for _, gradient in initial.gradients())


@PROXIES.register("snip")
class Snip(NetworkProxy):
    """The sum of |weight · gradient| over all weights (Lee et al., 2019; summed by Abdelfattah et al., 2021)."""

    label: ClassVar[str] = "SNIP"
    order: ClassVar[int] = 11

    def score(self, initial: Initial) -> float:
        return sum((weight * gradient).abs().sum().item() for weight, gradient in initial.gradients())


@PROXIES.register("synflow")
class SynFlow(NetworkProxy):
    """The sum of weight · ∂R/∂weight, R the sum of the outputs for an image of ones (Tanaka et al., 2020).

    All parameters are replaced by their absolute values, batch normalisation is left out, and ReLU6 does not saturate.
    The logarithm of the sum is returned, in float64.
    """

    label: ClassVar[str] = "SynFlow"
    order: ClassVar[int] = 12

    def score(self, initial: Initial) -> float:
        import torch

        from ._interception import linear

        network, weights = initial.network, initial.weights
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.abs_()
        try:
            network.double()
            with linear():
                flow = network(torch.ones_like(initial.images[:1], dtype=torch.float64)).sum()
            found = torch.autograd.grad(flow, weights, allow_unused=True)
            pairs = zip(weights, found, strict=True)
            total = sum((weight.detach() * one).sum().item() for weight, one in pairs if one is not None)
        finally:
            network.float()
        return math.log(total) if total > 0 else -math.inf


@PROXIES.register("naswot")
class NasWot(NetworkProxy):
    """log |det K|, K_ij the number of ReLUs in equal states for images i and j of the batch (Mellor et al., 2021)."""

    label: ClassVar[str] = "NASWOT"
    order: ClassVar[int] = 13

    def score(self, initial: Initial) -> float:
        import torch

        from ._interception import Activations

        with torch.no_grad(), Activations() as seen:
            initial.network(initial.images)
        if not seen.states:
            raise NotApplicable("the networks have no ReLU")
        codes = torch.cat([state.flatten(1) for state in seen.states], 1).to(torch.float32)
        active = codes.sum(1)  # whole numbers below 2²⁴, so that float32 is exact
        equal = codes.shape[1] - active[:, None] - active + 2 * (codes @ codes.T)
        return float(torch.linalg.slogdet(equal.double()).logabsdet)


@PROXIES.register("zen")
class Zen(NetworkProxy):
    """log E‖f(x) − f(x + 0.01·ε)‖ + Σ log σ, f the features before the last pooling (Lin et al., 2021).

    x, ε and all weights are standard normal; σ is the root of the mean variance that a batch normalisation divides by.
    The norm is the sum of absolute values, as in the released code.
    """

    label: ClassVar[str] = "Zen"
    order: ClassVar[int] = 14

    def score(self, initial: Initial) -> float:
        import torch

        from ._interception import Features

        rng = initial.generator("zen")
        with torch.no_grad():
            for weight in initial.weights:
                weight.normal_(generator=rng)
            plain, noise = (torch.empty_like(initial.images).normal_(generator=rng) for _ in range(2))
            with Features() as first:
                initial.network(plain)
            with Features(variances=False) as second:
                initial.network(plain + PERTURBATION * noise)
        if not first.variances:
            raise NotApplicable("the networks have no batch normalisation")
        if first.last is None or second.last is None:
            raise NotApplicable("the networks have no global pooling, before which Zen looks at their features")
        change = (first.last - second.last).abs().flatten(1).sum(1).mean().item()
        if change <= 0:
            return -math.inf
        return math.log(change) + sum(0.5 * math.log(max(one.mean().item(), 1e-12)) for one in first.variances)


class _AzNas(NetworkProxy):
    """A score of AZ-NAS (Lee & Ham, 2024), from the features after each block of a network that has random inputs.

    Weights are drawn as He et al. do (normal, fan-in). A network says what its blocks are by `block_features`.
    """

    def entropies(self, initial: Initial) -> list[float]:
        return initial.once("az-nas", lambda: _az_nas(initial))[0]

    def gains(self, initial: Initial) -> list[float]:
        return initial.once("az-nas", lambda: _az_nas(initial))[1]


@PROXIES.register("az-expressivity")
class AzExpressivity(_AzNas):
    """The sum over blocks of the entropy of the features' principal components (Lee & Ham, 2024)."""

    label: ClassVar[str] = "AZ-NAS expressivity"
    order: ClassVar[int] = 15

    def score(self, initial: Initial) -> float:
        return sum(self.entropies(initial))


@PROXIES.register("az-progressivity")
class AzProgressivity(_AzNas):
    """The least increase of that entropy from one block to the next (Lee & Ham, 2024)."""

    label: ClassVar[str] = "AZ-NAS progressivity"
    order: ClassVar[int] = 16

    def score(self, initial: Initial) -> float:
        found = self.entropies(initial)
        return min(after - before for before, after in pairwise(found))


@PROXIES.register("az-trainability")
class AzTrainability(_AzNas):
    """The mean over blocks of 2 − σ − 1/σ, σ the largest singular value of a block's Jacobian (Lee & Ham, 2024).

    The Jacobian is estimated from the gradient of random signs at the block's output, as a mean over images and places.
    A network with a block that is the identity, or lets nothing through, has no score.
    """

    label: ClassVar[str] = "AZ-NAS trainability"
    order: ClassVar[int] = 17

    def score(self, initial: Initial) -> float:
        return fmean(2 - gain - 1 / (gain + 1e-6) if gain > 0 else -math.inf for gain in self.gains(initial))


@PROXIES.register("az-nas")
class AzNas(Proxy):
    """Σ log(rank / n) over expressivity, progressivity, trainability and FLOPs (Lee & Ham, 2024).

    Ranks are among the architectures that are scored, the worst first; equal ones share the mean of their ranks.
    """

    label: ClassVar[str] = "AZ-NAS"
    order: ClassVar[int] = 18
    on_request: ClassVar[bool] = True

    def predict(self, scene: Scene, architectures: Sequence[Architecture]) -> Scores:
        from scipy.stats import rankdata

        parts = [PROXIES.get(name)() for name in ("az-expressivity", "az-progressivity", "az-trainability", "flops")]
        scores = [part.predict(scene, architectures) for part in parts]
        ranks = [rankdata([one[architecture] for architecture in architectures]) for one in scores]
        logs = sum(np.log(rank / len(architectures)) for rank in ranks)
        return dict(zip(architectures, np.asarray(logs).tolist(), strict=True))


def _az_nas(initial: Initial) -> tuple[list[float], list[float]]:
    """By block, the entropy of the eigenvalues of the covariance between channels; between two, the Jacobian's σ."""
    import torch

    blocks = getattr(initial.network, "block_features", None)
    if blocks is None:
        raise NotApplicable("the networks do not say what their blocks are (`block_features`)")
    rng = initial.generator("az-nas")
    with torch.no_grad():
        for weight in initial.weights:
            weight.normal_(0, math.sqrt(2 / weight[0].numel()), generator=rng)
    features: list[Tensor] = blocks(torch.empty_like(initial.images).normal_(generator=rng))
    return [_entropy(one) for one in features], [_gain(*pair, rng) for pair in pairwise(features)]


def _entropy(feature: Tensor) -> float:
    import torch

    rows = feature.detach().movedim(1, -1).flatten(0, -2).double()
    values = torch.linalg.eigvalsh((rows - rows.mean(0)).T @ (rows - rows.mean(0)) / len(rows)).clamp(min=0)
    shares = values / values.sum()
    return -float((shares * torch.log(shares + 1e-8)).sum())


def _gain(before: Tensor, after: Tensor, rng: torch.Generator) -> float:
    """The largest singular value of the Jacobian between two features; 0 for the identity, and where nothing passes."""
    import torch
    from torch.nn import functional

    signs = torch.empty_like(after).bernoulli_(0.5, generator=rng) * 2 - 1
    if not (before.requires_grad and after.requires_grad):
        return 0.0
    (back,) = torch.autograd.grad(after, before, signs, retain_graph=True, allow_unused=True)
    if back is None or (back.shape == signs.shape and torch.equal(back, signs)):
        return 0.0
    if back.shape[2:] != signs.shape[2:]:
        stride = math.ceil(back.shape[2] / signs.shape[2])
        missing = [stride * large - small for large, small in zip(signs.shape[2:], back.shape[2:], strict=True)]
        back = functional.pixel_unshuffle(functional.pad(back, (0, missing[1], 0, missing[0])), stride)
    outputs, inputs = (one.movedim(1, -1).flatten(0, -2) for one in (signs, back))
    return float(torch.linalg.matrix_norm(inputs.T @ outputs / len(outputs), 2))
