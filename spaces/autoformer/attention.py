"""Attention with relative positions of patches, as one node of torch's graph.

A score has a term for the distance of query and key, and so has the value. Both are sums of a part for the rows that
lie between and one for the columns. So each query needs one product per distance in rows and per distance in columns,
not one per key: for 14×14 patches 55 instead of 197. The products of queries with relative keys come in, and the
attention that each relative value gets comes out; between them the same two loops spread and gather.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .counts import relative_columns


class Positions:
    """Relative positions on a square of patches, `along` a side, with so many different distances.

    The columns of relative scores: distances in rows from −(along−1) to along−1, those in columns, the class token.
    """

    def __init__(self, along: int, distance: int) -> None:
        self.along = along
        reach = torch.arange(1 - along, along).clamp(-distance, distance)
        self.numbers = reach + distance + 1

    def of(self, key_rows: Tensor, key_columns: Tensor, value_rows: Tensor, value_columns: Tensor) -> tuple[Any, ...]:
        """Relative keys and values by column, and the side, from the tables of a block."""
        if self.numbers.device != key_rows.device:
            self.numbers = self.numbers.to(key_rows.device)
        return self._expanded(key_rows, key_columns), self._expanded(value_rows, value_columns), self.along

    def _expanded(self, rows: Tensor, columns: Tensor) -> Tensor:
        return torch.cat((rows[self.numbers], columns[self.numbers], rows[:1] + columns[:1]))


def attend(q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, along: int) -> Tensor:
    """Attention of all tokens, class token first: queries, keys and values as (samples × heads, tokens, head size)."""
    scale = q.shape[-1] ** -0.5
    relative = (q @ keys.T).mul(scale)
    y, weights = _Attention.apply(q, k, v, relative, scale, along)
    return y + weights @ values  # type: ignore[no-any-return]


class _Attention(torch.autograd.Function):
    """Softmax of scaled products and relative scores, applied to the values; and the same gathered by distance."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, relative: Tensor, scale: float, along: int) -> Any:
        scores = spread(relative, along).baddbmm_(q, k.transpose(1, 2), alpha=scale)
        attention = torch.softmax(scores, -1).to(q.dtype)
        ctx.save_for_backward(q, k, v, attention)
        ctx.scale, ctx.along = scale, along
        weights = gathered(attention, along)
        weights[:, 0, -1] = 1  # to the class token all are equally far
        return torch.bmm(attention, v), weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        q, k, v, attention = ctx.saved_tensors
        of_y, of_weights = (one.contiguous() for one in gradients)
        of_attention = spread(of_weights, ctx.along).baddbmm_(of_y, v.transpose(1, 2))
        of_scores = torch._softmax_backward_data(of_attention, attention, -1, attention.dtype)
        of_q = torch.baddbmm(q, of_scores, k, beta=0, alpha=ctx.scale)
        of_k = torch.baddbmm(k, of_scores.transpose(1, 2), q, beta=0, alpha=ctx.scale)
        of_v = torch.bmm(attention.transpose(1, 2), of_y)
        return of_q, of_k, of_v, gathered(of_scores, ctx.along), None, None


def spread(relative: Tensor, along: int) -> Tensor:
    """By query and key, what stands in the columns of their distance: (…, tokens, columns) → (…, tokens, tokens)."""
    relative = relative.contiguous()
    batch, tokens, _ = relative.shape
    whole = relative.new_empty(batch, tokens, tokens)
    whole[:, 0] = 0  # equal for all keys, which softmax does not see
    whole[:, 1:, 0] = relative[:, 1:, -1]
    rows, columns = _windows(relative, along)
    torch.add(rows.unsqueeze(-1), columns.unsqueeze(-2), out=_between_patches(whole, along))
    return whole


def gathered(whole: Tensor, along: int) -> Tensor:
    """The transpose of `spread`: by query and column, the sum over the keys at that distance."""
    batch, tokens, _ = whole.shape
    relative = whole.new_zeros(batch, tokens, relative_columns(along))
    relative[:, 1:, -1] = whole[:, 1:, 0]
    rows, columns = _windows(relative, along)
    patches = _between_patches(whole, along)
    rows.copy_(patches.sum(-1))
    columns.copy_(patches.sum(-2))
    return relative


def _between_patches(whole: Tensor, along: int) -> Tensor:
    """A view by row and column of the query and of the key."""
    strides = whole.stride(0), along * whole.stride(1), whole.stride(1), along, 1
    start = whole.storage_offset() + whole.stride(1) + 1  # behind the class token
    return whole.as_strided((len(whole), along, along, along, along), strides, start)


def _windows(relative: Tensor, along: int) -> tuple[Tensor, Tensor]:
    """Two views by row and column of the query: the columns of all rows of keys, and those of all columns of keys.

    The window of a query moves back by one with each of its rows, or columns: its stride is one less.
    """
    batch, tokens, width = relative.shape
    shape, start = (batch, along, along, along), relative.storage_offset() + width + along - 1
    rows = relative.as_strided(shape, (tokens * width, along * width - 1, width, 1), start)
    columns = relative.as_strided(shape, (tokens * width, along * width, width - 1, 1), start + 2 * along - 1)
    return rows, columns
