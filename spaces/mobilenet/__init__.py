"""The MobileNet space of ProxylessNAS: a chain of inverted bottlenecks (MBConv), each with a kernel and an expansion.

`mobilenet` is the whole space, `mobilenet-reduced` a small form of it with fewer layers and choices. The layers of both
are data in `layout.py`. Each layer is one decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from harness.components.latency import Pieces
from harness.components.registries import SPACES
from harness.components.space import Architecture, Block, Chain, SizedSpace, network_settings
from harness.errors import InvalidConfiguration

from .counts import Table, table
from .layout import LAYOUTS, SKIP, Operation, Plan, plan
from .settings import MobileNetwork, ReducedNetwork

if TYPE_CHECKING:
    import torch

FORMULAS = ("parameters", "flops")
SKIPS = (SKIP, "Identity", "Zero")
"""Ways of writing the operation that does nothing; the first is ours, the others are those of publications."""


def _choices(name: str) -> tuple[int, ...]:
    return tuple(len(layer.choices) for layer in plan(name, published(name)).layers)


@cache
def published(name: str, network: ReducedNetwork | None = None) -> Any:
    """The settings of the published counts: 224×224 images of 1000 classes; for the reduced form 16×16 and 10."""
    layout, own = LAYOUTS[name], network or (MobileNetwork() if name == "mobilenet" else ReducedNetwork())
    return network_settings(own, classes=layout.classes, image_channels=3, image_size=layout.image_size)


class Chained(SizedSpace):
    """What both forms share."""

    @cached_property
    def complexity_counts(self) -> tuple[str, ...]:  # type: ignore[override]
        """Formulas, and latencies that were measured (`harness benchmark latency`), each by the name of its table."""
        from harness.data.latency import counts

        return (*FORMULAS, *counts(self.name))

    def counts_text(self) -> str:
        return f"{super().counts_text()}, and what `python -m harness benchmark latency {self.name}` measures"

    def published(self, network: Any = None) -> Any:
        return published(self.name, network)

    def operations(self, decision: int) -> tuple[Operation | str, ...]:
        return self._plan.layers[decision].choices

    @property
    def _plan(self) -> Plan:
        return plan(self.name, self.settings)

    def parse(self, text: str) -> Architecture:
        """One word per layer: `3x3e6`, or `skip` where the layer allows it.

        The words of ProxylessNAS are read, too: `3x3_MBConv6`, and `Zero` or `Identity` for a skip.
        """
        words = text.split()
        if len(words) != len(self.choices):
            raise InvalidConfiguration(
                f"{text!r} has {len(words)} layers; an architecture of {self.name} has {len(self.choices)}, "
                "written as '3x3e6 skip 5x5e3 …'"
            )
        return tuple(self._choice(decision, word) for decision, word in enumerate(words))

    def _choice(self, decision: int, word: str) -> int:
        names = [str(operation) for operation in self.operations(decision)]
        plain = SKIP if word in SKIPS else word.replace("_MBConv", "e")
        if plain not in names:
            raise InvalidConfiguration(
                f"layer {decision} of {self.name} cannot be {word!r}; allowed: {', '.join(names)}"
            )
        return names.index(plain)

    def format(self, architecture: Architecture) -> str:
        return " ".join(
            str(self.operations(decision)[choice]) for decision, choice in enumerate(self.check(architecture))
        )

    def wiring(self, architecture: Architecture) -> Chain:
        """The blocks in a row, as Figures E to G of the paper: MB6 5×5, output channels above. Skips are left out."""
        sizes = self._plan
        blocks = [Block("Conv 3×3", str(sizes.stem)), _block(sizes.first.choices[0], sizes.first.outputs, False)]
        for layer, choice in zip(sizes.layers, self.check(architecture), strict=True):
            if (operation := layer.choices[choice]) != SKIP:
                blocks.append(_block(operation, layer.outputs, True))
        return Chain((*blocks, Block("Conv 1×1", str(sizes.head)), Block("Pool, FC", str(sizes.classes))))

    def complexity(self, architecture: Architecture, count: str = "parameters", settings: Any = None) -> int:
        return self._table(count, settings).of(self.check(architecture))

    def extremes(self, count: str = "parameters") -> tuple[int, Architecture, int, Architecture]:
        return self._table(count).extremes()

    def _table(self, count: str, settings: Any = None) -> Table:
        settings = settings or self.settings
        if count.startswith("latency"):
            return self._latency(count, settings)
        if count not in FORMULAS:
            raise InvalidConfiguration(f"complexity {count!r} is unknown; allowed: {self.counts_text()}")
        return table(self.name, count, settings)

    def _latency(self, count: str, settings: Any) -> Table:
        """A measured table; read once, since a search asks for it thousands of times."""
        if (count, settings) not in self._measured:
            from harness.data.latency import table_of

            found = table_of(self.name, count, self.latency_settings(settings))
            self._measured[count, settings] = Table(found.shared, found.layers)
        return self._measured[count, settings]

    @cached_property
    def _measured(self) -> dict[tuple[str, Any], Table]:
        return {}

    def latency_settings(self, settings: Any) -> dict[str, Any]:
        """How batch normalisation is trained does not matter."""
        names = ("image_size", "image_channels", "classes", "width_multiplier", "squeeze", "stage1_width")
        return {name: getattr(settings, name) for name in names if hasattr(settings, name)}

    def pieces(self, settings: Any) -> Pieces:
        from .networks import pieces

        return pieces(plan(self.name, settings), settings)

    def network_class(self, architecture: Architecture) -> Architecture:
        """Layers of one shape are exchangeable in a new network, so only the order of those that are left matters."""
        ordered: list[int] = []
        stage: list[int] = []
        skipped: list[int] = []
        for layer, choice in zip(self._plan.layers, self.check(architecture), strict=True):
            if SKIP not in layer.choices:
                ordered += stage + skipped
                stage, skipped = [], []
            (skipped if layer.choices[choice] == SKIP else stage).append(choice)
        return (*ordered, *stage, *skipped)

    def alone(self, network: Any) -> Any:
        return replace(network, batch_norm="tracked")

    def parameter_groups(self, network: torch.nn.Module) -> Sequence[Mapping[str, Any]]:
        from .networks import parameter_groups

        return parameter_groups(network)

    def operation_parameters(self, network: Any) -> Mapping[tuple[int, int], Sequence[torch.Tensor]]:
        return network.operation_parameters()  # type: ignore[no-any-return]

    def supernet(self, settings: Any) -> torch.nn.Module:
        from .networks import Supernet

        return Supernet(plan(self.name, settings), settings)

    def standalone(self, architecture: Architecture, settings: Any) -> torch.nn.Module:
        from .networks import StandaloneNetwork

        return StandaloneNetwork(self.check(architecture), plan(self.name, settings), settings)


def _block(operation: Operation | str, channels: int, searched: bool) -> Block:
    assert isinstance(operation, Operation)
    kernel = f"{operation.kernel}×{operation.kernel}"
    return Block(f"MB{operation.expansion} {kernel}", str(channels), kernel if searched else "", operation.expansion)


@SPACES.register("mobilenet")
class MobileNet(Chained):
    """21 inverted bottlenecks of 3 kernels and 2 expansions, 15 of which may be skipped: 2·10^17 architectures."""

    name = "mobilenet"
    choices = _choices("mobilenet")
    Network = MobileNetwork
    split = 1


@SPACES.register("mobilenet-reduced")
class ReducedMobileNet(Chained):
    """8 inverted bottlenecks of 2 kernels and 2 expansions, 5 of which may be skipped: for images of 16 pixels."""

    name = "mobilenet-reduced"
    choices = _choices("mobilenet-reduced")
    Network = ReducedNetwork
    split = 1
