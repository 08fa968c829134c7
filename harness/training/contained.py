"""Which parameters a path contains: more than those that get a gradient, where operations cannot reach the output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from harness.components.space import Architecture, Space


def without_gradient(
    space: Space, network: torch.nn.Module, parameters: Iterable[Tensor], paths: Sequence[Architecture]
) -> list[Tensor]:
    """The parameters without gradient that these paths contain.

    They belong to operations that cannot reach the output, or to what comes before a cell that is zero. None where the
    space does not say which parameters belong to which choice.
    """
    missing = [parameter for parameter in parameters if parameter.grad is None]
    owned = space.operation_parameters(network) if missing else {}
    if not owned:
        return []
    taken = {
        (decision, choice) for path in paths for decision, choice in enumerate(path) if space.matters(path, decision)
    }
    others = {id(parameter) for key, own in owned.items() if key not in taken for parameter in own}
    return [parameter for parameter in missing if id(parameter) not in others]
