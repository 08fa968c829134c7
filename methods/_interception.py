"""What a network computes inside, whatever its modules are: activations, features, statistics. Imports torch.

Functions are intercepted, not modules: networks here call `torch.relu` and apply an activation once per node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from harness.components.proxy import NotApplicable

RELUS: set[Callable[..., Any]] = {
    torch.relu,
    torch.relu_,
    Tensor.relu,
    Tensor.relu_,
    functional.relu,
    functional.relu_,
    functional.relu6,
    functional.hardtanh,
    functional.hardtanh_,
}
"""ReLU and ReLU6, which is a hardtanh."""

NOT_LINEAR: set[Callable[..., Any]] = {
    functional.gelu,
    functional.softmax,
    functional.layer_norm,
    functional.scaled_dot_product_attention,
    torch.softmax,
    Tensor.softmax,
}
"""What keeps a network from being linear on positive values."""


class _Watching(TorchFunctionMode):
    """Calls every function as it is, and lets a subclass look at it."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.before(func, args, kwargs or {})
        result = func(*args, **(kwargs or {}))
        self.after(func, result)
        return result

    def before(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Called before the function."""

    def after(self, func: Callable[..., Any], result: Any) -> None:
        """Called after the function."""


class Activations(_Watching):
    """The states of all ReLUs: whether the output is above 0."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[Tensor] = []

    def after(self, func: Callable[..., Any], result: Any) -> None:
        if func in RELUS:
            self.states.append(result > 0)


class Features(_Watching):
    """The input of the last global pooling and, if asked for, the variances that batch normalisation divides by."""

    def __init__(self, variances: bool = True) -> None:
        super().__init__()
        self.last: Tensor | None = None
        self.variances: list[Tensor] = []
        self._varies = variances

    def before(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if func is functional.batch_norm and self._varies:
            self.variances.append(args[0].var((0, 2, 3), unbiased=False))
        elif func in (functional.adaptive_avg_pool2d, Tensor.mean, torch.mean) and args[0].ndim == 4:
            dims = kwargs.get("dim", args[1] if len(args) > 1 else ())
            if func is functional.adaptive_avg_pool2d or dims in ((2, 3), [2, 3], (-2, -1), [-2, -1]):
                self.last = args[0]


class _Linear(TorchFunctionMode):
    """Leaves batch normalisation out, and lets ReLU6 not saturate. Raises `NotApplicable`."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is functional.batch_norm:
            return args[0]
        if func in (functional.hardtanh, functional.hardtanh_, functional.relu6):
            return torch.relu(args[0])
        if func in NOT_LINEAR:
            raise NotApplicable(f"the networks use {func.__name__}, which is not linear on positive values")
        return func(*args, **(kwargs or {}))


@contextmanager
def linear() -> Iterator[None]:
    """Within, a network with weights that are not negative is linear on images that are not negative."""
    with _Linear():
        yield
