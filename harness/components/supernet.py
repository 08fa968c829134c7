"""What a supernet may offer besides `forward(images, architecture)`: optional abilities, as protocols. No torch.

A supernet is any `torch.nn.Module`. It offers an ability by having the method of that name; nothing is declared.
The engine and methods ask with `isinstance(network, Mixture)`, or with `offered`, whose error names the ability.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable

from harness.components.space import Architecture
from harness.errors import InvalidConfiguration

if TYPE_CHECKING:
    import torch

    Logits = Callable[[int, Architecture], torch.Tensor]
    """(batch number, architecture) → logits."""

A = TypeVar("A")


@runtime_checkable
class SharedEvaluation(Protocol):
    """Evaluates many architectures on the same images and weights, and shares work between them."""

    def evaluation(self, batches: Sequence[torch.Tensor]) -> Logits:
        """A function from the number of a batch and an architecture to logits. Weights do not change meanwhile."""


@runtime_checkable
class Calibrated(Protocol):
    """Sets the statistics of batch normalisation for one architecture before it is evaluated."""

    def calibrated(self, architecture: Architecture, batches: Sequence[torch.Tensor]) -> AbstractContextManager[Any]:
        """A context in which that architecture uses statistics of these images; afterwards all is as before."""


@runtime_checkable
class Mixture(Protocol):
    """Runs all choices of every decision at once, weighted: what architecture parameters are learnt through."""

    def forward_mixed(self, x: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits of the mixture; `weights` holds one vector per decision, with one weight per choice.

        One-hot weights give the logits of that architecture. Differentiable in images, network and weights.
        """


@runtime_checkable
class Gated(Protocol):
    """Runs one path whose choices are weighted: architecture parameters are learnt without the other choices."""

    def forward_gated(self, x: torch.Tensor, architecture: Architecture, gates: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits of the path, the outcome of each decision's choice times its gate: a number per decision.

        Gates of 1 give the path's logits. Differentiable in images, network and gates.
        """


@runtime_checkable
class Shifted(Protocol):
    """Runs one path as `Gated` does, with a number added to the result of every decision."""

    def forward_shifted(
        self,
        x: torch.Tensor,
        architecture: Architecture,
        gates: Sequence[torch.Tensor],
        shifts: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        """Logits of the path, each outcome times its gate plus its shift, also where the outcome is zero.

        Shifts of 0 give the logits of `Gated.forward_gated`. Differentiable in images, network, gates and shifts.
        """


@runtime_checkable
class TwiceDifferentiable(Protocol):
    """Can leave its fast path, so that gradients of gradients exist and hooks of modules run."""

    def twice_differentiable(self) -> AbstractContextManager[Any]:
        """A context in which `forward` is built of operations that can be differentiated twice."""


@runtime_checkable
class Compiled(Protocol):
    """Can have its operations compiled by torch (`run --compile`)."""

    def compile_operations(self) -> None:
        """Compile, once, before training."""


@runtime_checkable
class Published(Protocol):
    """Knows the names that released files have for its weights (`harness weights import`)."""

    def from_published(self, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The same weights by its own names; names that it does not know stay as they are."""


def offered(network: Any, ability: Callable[..., A], wanted_by: str) -> A:
    """The network as one that has the ability. Raises `InvalidConfiguration` if it lacks it."""
    kind: Any = ability  # a protocol is no concrete class
    if isinstance(network, kind):
        return cast(A, network)
    methods = [name for name in vars(kind) if not name.startswith("_")]
    raise InvalidConfiguration(
        f"{wanted_by} needs a supernet with the method {', '.join(methods)} ({kind.__name__} of "
        f"harness.components.supernet); {type(network).__name__} has none"
    )
