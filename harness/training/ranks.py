"""The ranks of a data-parallel group: processes that train one trial together.

All ranks draw the same paths from the same rng and make the same updates; each sees its part of a batch. So all that
they exchange is sums. `Ranks()` is the null object: one process, nothing to exchange. A step, an update, a loss or an
evaluation asks it and never whether there is a group. `join` makes a group of several processes.

Every collective call blocks until all ranks have made it: all ranks must make the same ones in the same order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as distributed
from torch import Tensor

from harness.errors import HarnessError, InvalidConfiguration, RanksLost

TIMEOUT = 1800.0
"""Seconds that a rank waits for the others in one call: the first may write a checkpoint to a slow disk meanwhile."""

BUCKET = 8 << 20
"""Bytes of gradients that are sent at once while the backward pass goes on."""


class Ranks:
    """A group of `size` processes, seen from process `index`. This class is the group of one."""

    index = 0
    size = 1

    @property
    def first(self) -> bool:
        """Whether this process writes what is stored."""
        return self.index == 0

    def sum_(self, tensors: Sequence[Tensor], like: Sequence[Tensor] | None = None) -> None:
        """Replace each tensor by its sum over the ranks: one exchange for all of them.

        Elements are sent in the memory order of the tensors `like` them, which must be equal on all ranks.
        """

    def sums(self, values: Sequence[float]) -> list[float]:
        """The sums of numbers over the ranks."""
        return list(values)

    def soon_(self, tensor: Tensor) -> None:
        """Begin to replace a tensor by its sum over the ranks; `settle` waits for it."""

    def settle(self) -> None:
        """Wait for all sums that `soon_` has begun."""

    def summing(self, parameters: Sequence[Tensor]) -> contextlib.AbstractContextManager[None]:
        """Context of the last backward pass before an update; then the gradients of these parameters are sums over
        the ranks. They are sent as they become ready, while the pass goes on."""
        return contextlib.nullcontext()

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over the ranks as a new tensor, with its gradient, also twice."""
        return tensor

    def gathered(self, part: Tensor) -> Tensor:
        """The parts of all ranks one after the other, along the first dimension; they may have different lengths."""
        return part

    def near(self, count: int) -> Ranks:
        """The group of `count` neighbours that this rank belongs to, of as many such groups as there are."""
        return self

    def agree(self, numbers: Mapping[str, int], when: str) -> None:
        """Raise an error that names the rank if a number (below 2⁶³) is not the same on all ranks."""

    def barrier(self) -> None:
        """Wait for all ranks."""

    def leave(self) -> None:
        """End the membership. The others are not waited for."""


ALONE = Ranks()


def join(index: int, size: int, address: str, device: torch.device | str = "cpu", timeout: float = TIMEOUT) -> Ranks:
    """Become rank `index` of a group of `size` processes; blocks until all have joined, at most `timeout` seconds.

    `address` is where they meet: `file://` with a path that all can write, which does not exist yet and which none
    other uses, or `tcp://host:port`. Tensors on a CPU are exchanged by gloo, those on a GPU by nccl.
    """
    if not 0 <= index < size:
        raise InvalidConfiguration(f"rank {index} of {size}: the index must be 0 to {size - 1}")
    if size == 1:
        return ALONE
    device = torch.device(device)
    backend = "gloo" if device.type == "cpu" else f"cpu:gloo,{device.type}:nccl"
    with _contact(index, size):
        distributed.init_process_group(
            backend, init_method=address, rank=index, world_size=size, timeout=timedelta(seconds=timeout)
        )
    return _Group(index, size, None)


class _Group(Ranks):
    """A group of several processes over `torch.distributed`."""

    def __init__(self, index: int, size: int, group: Any) -> None:
        self.index, self.size, self.group = index, size, group
        self._neighbours: dict[int, Ranks] = {size: self}
        self._passing: _Passing | None = None
        self._begun: list[_Sent] = []

    def __deepcopy__(self, memo: Any) -> Ranks:
        return self

    def sum_(self, tensors: Sequence[Tensor], like: Sequence[Tensor] | None = None) -> None:
        for send in _sent(tensors, like or tensors, self.group, self.contact):
            send.wait()

    def sums(self, values: Sequence[float]) -> list[float]:
        tensor = torch.tensor(values, dtype=torch.double)
        self.sum_([tensor])
        found: list[float] = tensor.tolist()
        return found

    def soon_(self, tensor: Tensor) -> None:
        self.settle()
        self._begun = _sent([tensor], [tensor], self.group, self.contact)

    def settle(self) -> None:
        for one in self._begun:
            one.wait()
        self._begun = []

    @contextlib.contextmanager
    def summing(self, parameters: Sequence[Tensor]) -> Iterator[None]:
        for parameter in parameters:
            # Kept at the parameter: numbers of objects are used again, and all ranks must send in the same order.
            if getattr(parameter, "_summed_by", None) is not self:
                parameter._summed_by = self  # type: ignore[attr-defined]
                parameter.register_post_accumulate_grad_hook(self._arrived)  # type: ignore[no-untyped-call]
        self._passing = passing = _Passing(self)
        try:
            yield
        finally:
            self._passing = None
        passing.finish(parameters)

    def _arrived(self, parameter: Tensor) -> None:
        if self._passing is not None:
            self._passing.add(parameter)

    def total(self, tensor: Tensor) -> Tensor:
        found: Tensor = _Total.apply(tensor, self)
        return found

    def gathered(self, part: Tensor) -> Tensor:
        lengths = [0] * self.size
        lengths[self.index] = len(part)
        counts = [int(count) for count in self.sums(lengths)]
        start = sum(counts[: self.index])
        whole = part.new_zeros((sum(counts), *part.shape[1:]))
        whole[start : start + len(part)] = part
        self.sum_([whole])
        return whole

    def near(self, count: int) -> Ranks:
        if count not in self._neighbours:
            with self.contact():
                for first in range(0, self.size, count):  # every rank takes part in making every group
                    group = distributed.new_group(list(range(first, first + count)))
                    if first <= self.index < first + count:
                        self._neighbours[count] = _Group(self.index - first, count, group) if count > 1 else ALONE
        return self._neighbours[count]

    def agree(self, numbers: Mapping[str, int], when: str) -> None:
        rows = torch.zeros(self.size, len(numbers), dtype=torch.long)
        rows[self.index] = torch.tensor(list(numbers.values()))
        self.sum_([rows])
        for place, name in enumerate(numbers):
            for rank in range(1, self.size):
                if rows[rank, place] != rows[0, place]:
                    raise HarnessError(
                        f"{when}, rank {rank} of {self.size} has other {name} than rank 0: all ranks of a trial must "
                        "compute the same. A component that draws from a generator of its own, or that looks at its "
                        "part of a batch alone, makes them differ; --ranks 1 trains it"
                    )

    def barrier(self) -> None:
        self.sums([0.0])

    def leave(self) -> None:
        if self.group is None and distributed.is_initialized():
            distributed.destroy_process_group()

    def contact(self) -> contextlib.AbstractContextManager[None]:
        return _contact(self.index, self.size)


@contextlib.contextmanager
def _contact(index: int, size: int) -> Iterator[None]:
    """Context of calls that need the other ranks. Raises `RanksLost` where they do not answer."""
    try:
        yield
    except RuntimeError as error:  # of torch: the connection was closed, or a call took too long
        text = " ".join(str(error).split())[:300]
        raise RanksLost(f"rank {index} of {size} has lost the others, or they do other work: {text}") from error


class _Sent:
    """Tensors of one type on their way: one flat buffer, whose sum replaces them."""

    def __init__(self, tensors: Sequence[Tensor], group: Any, contact: Any) -> None:
        self.tensors, self.contact = tensors, contact
        alone = len(tensors) == 1 and tensors[0].is_contiguous()
        self.flat = tensors[0].view(-1) if alone else torch.cat([one.reshape(-1) for one in tensors])
        self.alone = alone
        with contact():
            self.work = distributed.all_reduce(self.flat, group=group, async_op=True)

    def wait(self) -> None:
        with self.contact():
            self.work.wait()
        if not self.alone:
            pieces = torch.split(self.flat, [one.numel() for one in self.tensors])
            shaped = [piece.view(one.shape) for piece, one in zip(pieces, self.tensors, strict=True)]
            torch._foreach_copy_(list(self.tensors), shaped)


@torch.no_grad()
def _sent(tensors: Sequence[Tensor], like: Sequence[Tensor], group: Any, contact: Any) -> list[_Sent]:
    """Begin to sum the tensors; those of one type and device go together."""
    kinds: dict[Any, list[Tensor]] = {}
    for tensor, pattern in zip(tensors, like, strict=True):
        kinds.setdefault((tensor.dtype, tensor.device), []).append(_in_memory_order(tensor.detach(), pattern))
    return [_Sent(own, group, contact) for own in kinds.values()]


def _in_memory_order(tensor: Tensor, pattern: Tensor) -> Tensor:
    """A view whose elements are in the order that the pattern has in memory: nothing is turned to be sent."""
    last = not pattern.is_contiguous() and pattern.dim() == 4
    if last and pattern.is_contiguous(memory_format=torch.channels_last):
        return tensor.permute(0, 2, 3, 1)
    return tensor


class _Passing:
    """A backward pass whose gradients are sent in buckets as they become ready, those of the last layers first."""

    def __init__(self, ranks: _Group) -> None:
        self.ranks = ranks
        self.ready: list[Tensor] = []
        self.bytes = 0
        self.taken: set[int] = set()
        self.sent: list[_Sent] = []

    def add(self, parameter: Tensor) -> None:
        self.taken.add(id(parameter))
        self.ready.append(parameter)
        self.bytes += parameter.numel() * parameter.element_size()
        if self.bytes >= BUCKET:
            self.send()

    def send(self) -> None:
        if self.ready:
            gradients = [one.grad for one in self.ready if one.grad is not None]
            self.sent += _sent(gradients, self.ready, self.ranks.group, self.ranks.contact)
        self.ready, self.bytes = [], 0

    def finish(self, parameters: Iterable[Tensor]) -> None:
        """Send what earlier passes of the step have left, too, and wait for all sums."""
        for parameter in parameters:
            if parameter.grad is not None and id(parameter) not in self.taken:
                self.ready.append(parameter)
        self.send()
        for one in self.sent:
            one.wait()


class _Total(torch.autograd.Function):
    """The sum over ranks. What a rank adds has a part in the losses of all: its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        whole = tensor.clone(memory_format=torch.contiguous_format)
        ranks.sum_([whole])
        return whole

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return ctx.ranks.total(gradients[0]), None
