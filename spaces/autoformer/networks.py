"""The space's networks: the supernet, and an architecture as a network of its own. Both are one class.

Weights are entangled: a path uses the leading rows and columns of the supernet's matrices. A stand-alone network is the
same with matrices of its own size, so its weights are the leading parts of the supernet's (`inherit`). Only what the
path needs is computed, and blocks beyond its depth get no gradient. The gradient of a matrix is zero outside of
the part that was used.

Initial weights: linear layers, positions and class token from a normal distribution of deviation 0.02, cut at 2;
biases 0; normalisation 1 and 0; the patch embedding as torch initialises convolutions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.components.space import Architecture
from harness.training.parts import per_image

from .attention import Positions, attend
from .counts import table_rows
from .layout import Layout, Transformer, side

DEVIATION = 0.02


class Block(nn.Module):
    """Attention and MLP, each behind a layer normalisation and added to its input."""

    def __init__(self, embedding: int, heads: int, hidden: int, head_size: int, settings: Any, drop: float) -> None:
        super().__init__()
        queries = heads * head_size
        self.head_size, self.drop = head_size, drop
        self.attention_norm = nn.LayerNorm(embedding)
        self.qkv = nn.Linear(embedding, 3 * queries)
        self.projection = nn.Linear(queries, embedding)
        self.mlp_norm = nn.LayerNorm(embedding)
        self.fc1 = nn.Linear(embedding, hidden)
        self.fc2 = nn.Linear(hidden, embedding)
        rows = table_rows(settings.relative_distance)
        for name in TABLES:
            self.register_parameter(name, nn.Parameter(torch.empty(rows, head_size)) if rows else None)

    def forward(self, x: Tensor, heads: int, hidden: int, positions: Positions | None) -> Tensor:
        d = x.shape[-1]
        x = x + self.dropped(self.attention(_normed(self.attention_norm, x), heads, positions))
        y = functional.gelu(_linear(self.fc1, _normed(self.mlp_norm, x), hidden))
        return x + self.dropped(_linear(self.fc2, y, d))

    def attention(self, x: Tensor, heads: int, positions: Positions | None) -> Tensor:
        batch, tokens, d = x.shape
        queries = heads * self.head_size
        # Rows of the weights are those of query, key and value in turn, as released; those of the bias are not.
        weight = self.qkv.weight[: 3 * queries, :d].view(queries, 3, d).transpose(0, 1).reshape(-1, d)
        qkv = functional.linear(x, weight, self.qkv.bias[: 3 * queries])
        q, k, v = qkv.view(batch, tokens, 3, heads, -1).permute(2, 0, 3, 1, 4).reshape(3, batch * heads, tokens, -1)
        if positions is None:
            y = functional.scaled_dot_product_attention(q, k, v)
        else:
            y = attend(q, k, v, *positions.of(*(self.get_parameter(name) for name in TABLES)))
        y = y.view(batch, heads, tokens, -1).transpose(1, 2).reshape(batch, tokens, queries)
        return _linear(self.projection, y, d)

    def dropped(self, x: Tensor) -> Tensor:
        """The same with some samples left out in training, and the others larger, so that the mean is kept."""
        if not self.training or not self.drop:
            return x
        kept = 1 - self.drop
        return x * per_image(x, lambda count: x.new_empty(count, 1, 1).bernoulli_(kept)).div_(kept)


TABLES = ("key_rows", "key_columns", "value_rows", "value_columns")
"""The tables of relative positions of a block. Row 0 is that of the class token."""


def _linear(layer: nn.Linear, x: Tensor, outputs: int) -> Tensor:
    """The layer's leading part that fits the input and has so many outputs."""
    return functional.linear(x, layer.weight[:outputs, : x.shape[-1]], layer.bias[:outputs])


def _normed(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    d = x.shape[-1]
    return functional.layer_norm(x, (d,), norm.weight[:d], norm.bias[:d], norm.eps)


class Network(nn.Module):
    """A transformer of some size, which runs itself or smaller ones in its leading weights."""

    def __init__(self, sizes: Transformer, layout: Layout, settings: Any) -> None:
        super().__init__()
        d, self.patch, along = sizes.embedding, settings.patch_size, side(settings)
        self.by_token = settings.pooling == "class-token"
        self.stochastic, self.draws_per_image = settings.drop_path > 0, True
        self.patches = nn.Conv2d(settings.image_channels, d, self.patch, self.patch)
        self.class_token = nn.Parameter(torch.empty(1, 1, d))
        self.positions = nn.Parameter(torch.empty(1, along**2 + 1, d))
        self.blocks = nn.ModuleList(
            Block(d, heads, hidden, sizes.head_size, settings, settings.drop_path * place / max(1, layout.blocks - 1))
            for place, (heads, hidden) in enumerate(zip(sizes.heads, sizes.hidden, strict=True))
        )
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, settings.classes)
        self.relative = Positions(along, settings.relative_distance) if settings.relative_distance else None
        self.initialise()

    def initialise(self) -> None:
        tables = [getattr(block, name) for block in self.blocks for name in TABLES if self.relative is not None]
        linear = [module for module in self.modules() if isinstance(module, nn.Linear)]
        for tensor in (self.class_token, self.positions, *tables, *(module.weight for module in linear)):
            nn.init.trunc_normal_(tensor, std=DEVIATION)
        for module in linear:
            nn.init.zeros_(module.bias)

    def run(self, images: Tensor, sizes: Transformer) -> Tensor:
        d, patch = sizes.embedding, self.patch
        batch, channels, height, width = images.shape
        cut = images.reshape(batch, channels, height // patch, patch, width // patch, patch)
        pixels = cut.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, channels * patch**2)
        x = functional.linear(pixels, self.patches.weight[:d].flatten(1), _bias(self.patches)[:d])
        x = torch.cat((self.class_token[..., :d].expand(batch, -1, -1), x), 1) + self.positions[..., :d]
        for block, heads, hidden in zip(self.blocks, sizes.heads, sizes.hidden, strict=False):
            x = block(x, heads, hidden, self.relative)
        x = _normed(self.norm, x)
        return _linear(self.head, x[:, 0] if self.by_token else x[:, 1:].mean(1), self.head.out_features)


def _bias(layer: nn.Conv2d) -> Tensor:
    assert layer.bias is not None
    return layer.bias


class Supernet(Network):
    """All architectures of the space over one set of weights."""

    def __init__(self, layout: Layout, settings: Any) -> None:
        super().__init__(layout.supernet, layout, settings)
        self.layout = layout

    def forward(self, x: Tensor, architecture: Architecture) -> Tensor:
        return self.run(x, self.layout.transformer(architecture))

    def from_published(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights of a released file, by our names."""
        from .released import renamed

        return renamed(weights)


class StandaloneNetwork(Network):
    """One architecture as a network of its own."""

    def __init__(self, sizes: Transformer, layout: Layout, settings: Any) -> None:
        super().__init__(sizes, layout, settings)
        self.sizes = sizes

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x, self.sizes)


def parameter_groups(network: nn.Module) -> list[dict[str, Any]]:
    """Matrices with weight decay, those of relative positions too; the rest without: biases, norms, positions."""
    decayed = [one for name, one in network.named_parameters() if _decays(name, one)]
    others = [one for name, one in network.named_parameters() if not _decays(name, one)]
    return [{"params": decayed}, {"params": others, "weight_decay_factor": 0.0}]


def _decays(name: str, parameter: Tensor) -> bool:
    return parameter.ndim > 1 and name not in ("class_token", "positions")
