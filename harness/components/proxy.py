"""Interface of a proxy: it scores architectures without training the supernet. Imports no torch.

A proxy is a class in `methods/`, registered in `PROXIES`. Each is a row of references (`report --references`), judged
as the study judges its runs. `harness.training.proxies` runs them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from harness.components.space import Architecture, Space
from harness.errors import HarnessError

if TYPE_CHECKING:
    import torch

    from harness.components.benchmark import Benchmark

T = TypeVar("T")

Scores = Mapping[Architecture, Any]
"""By architecture a number, higher is better; or a number and a loss."""


class NotApplicable(HarnessError):
    """The proxy has no meaning for these networks; the message says why. Its row is left out."""


class Scene(Protocol):
    """What a proxy may look at: the networks, images and truth of one configuration and seed."""

    @property
    def space(self) -> Space: ...

    @property
    def benchmark(self) -> Benchmark: ...

    @property
    def seed(self) -> int: ...

    @property
    def truth(self) -> str:
        """The data set of the benchmark whose accuracies judge."""

    @property
    def budget(self) -> float:
        """Epochs of single paths that the training of the configuration makes: its cost, without evaluations."""

    def trained(self, architecture: Architecture, epochs: int) -> float:
        """The validation accuracy (%) of a stand-alone network after so many epochs, trained as the configuration says:
        its batches, learning rate, momentum and decay, with a cosine schedule."""

    def untrained(self, architectures: Sequence[Architecture]) -> Scores:
        """The predictions of the supernet with its initial weights."""

    def scored(self, proxy: NetworkProxy, architectures: Sequence[Architecture]) -> Scores:
        """The scores of the architectures' stand-alone networks, one network for each class of equal ones."""


class Initial(Protocol):
    """A stand-alone network with its initial weights, and one batch of training images."""

    @property
    def network(self) -> torch.nn.Module:
        """In training mode. A proxy may change its weights: they are restored before the next one."""

    @property
    def weights(self) -> Sequence[torch.nn.Parameter]:
        """Those of convolutions and linear layers: all parameters with more than one dimension."""

    @property
    def images(self) -> torch.Tensor: ...

    def gradients(self) -> Sequence[tuple[torch.Tensor, torch.Tensor]]:
        """The weights, each with the gradient of the batch's mean cross-entropy."""

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """The result of `compute`, which several proxies share by that name."""

    def generator(self, purpose: str) -> torch.Generator:
        """Random numbers that depend on the seed and the purpose, not on the architecture."""


class Proxy(ABC):
    """Scores architectures without training the supernet."""

    label: ClassVar[str]
    """Its name in tables."""
    order: ClassVar[int] = 100
    """Rows are in ascending order; equal ones by name."""
    on_request: ClassVar[bool] = False
    """Whether `run` makes it only with `--references-only`, or for a study that shows references itself."""
    supernet: ClassVar[bool] = False
    """Whether it evaluates the supernet: its validation loss is measured with it."""
    accuracies: ClassVar[bool] = False
    """Whether the scores are accuracies in %. Registered metrics are functions of these, and shown for no other."""
    version: ClassVar[int] = 1
    """Must change when the meaning of the scores changes."""

    @abstractmethod
    def predict(self, scene: Scene, architectures: Sequence[Architecture]) -> Scores:
        """The scores of these architectures. Raises `NotApplicable`."""


@dataclass(frozen=True)
class Outcome:
    """What a search of equal cost has found."""

    architecture: Architecture | None
    """None where the accuracy is a mean over draws."""
    accuracy: float
    """Its looked-up accuracy, in %."""
    count: int
    """How many architectures were compared."""


class Finder(Proxy):
    """Finds an architecture without a supernet. It ranks no others: its row has a top-1 accuracy and no τ."""

    def predict(self, scene: Scene, architectures: Sequence[Architecture]) -> Scores:
        raise NotApplicable("it finds an architecture and ranks none")

    @abstractmethod
    def find(self, scene: Scene) -> Outcome:
        """What it finds. Raises `NotApplicable`."""


class NetworkProxy(Proxy):
    """Scores a stand-alone network with its initial weights, on one batch."""

    on_request: ClassVar[bool] = True

    def predict(self, scene: Scene, architectures: Sequence[Architecture]) -> Scores:
        return scene.scored(self, architectures)

    @abstractmethod
    def score(self, initial: Initial) -> float:
        """The score of one network. Raises `NotApplicable`.

        A score that is not finite ranks last; so does a network that it does not apply to, if it applies to others.
        """
