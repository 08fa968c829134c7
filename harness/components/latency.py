"""What a space offers so that the latency of its architectures can be measured, layer by layer. No torch.

The time of an architecture is taken as the sum of the times of its pieces. `harness benchmark latency SPACE` measures
every piece once and stores a table (`harness.data.latency`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Piece:
    """A part of a network that runs by itself."""

    network: torch.nn.Module
    shape: tuple[int, int, int]
    """Channels, height and width of its input."""


@dataclass(frozen=True)
class Pieces:
    """All pieces of a space's networks of one size."""

    shared: Sequence[Piece]
    """What every architecture runs."""
    layers: Sequence[Sequence[Piece | None]]
    """By decision and choice; None for a choice that runs nothing."""


@runtime_checkable
class Measurable(Protocol):
    """A space whose architectures are chains of pieces."""

    def latency_settings(self, settings: Any) -> Mapping[str, Any]:
        """Those of the settings that its latency depends on, as plain JSON types."""

    def pieces(self, settings: Any) -> Pieces:
        """The pieces of networks of these settings."""
