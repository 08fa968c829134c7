"""The AutoFormer supernet at its full size: our training step against the same step as research code writes it.

Both sides train the same paths on the same batch of 32 images of 224×224 pixels: forward, backward, update by AdamW.
The plain side is built of torch's layers and timm's patch embedding: weights are cut for every layer, and every pair of
tokens has its relative position looked up and multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from harness.components.registries import SPACES
from harness.components.space import network_settings
from tests.perf.turns import our_turn, paths, plain_turn, random_batch

BATCH, SIDE, CLASSES = 32, 224, 1000
PATHS = 2
"""Different paths per turn: few, since a step takes seconds; the same in every turn, so that turns are comparable."""
RATE, DECAY = 1e-3, 0.05


class PlainTable(nn.Module):
    """Relative positions by row and by column, for every pair of tokens."""

    def __init__(self, distance: int, size: int) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.randn(2 * distance + 2, size) * 0.02)
        self.columns = nn.Parameter(torch.randn(2 * distance + 2, size) * 0.02)
        self.distance = distance

    def forward(self, tokens: int) -> Tensor:
        along = int((tokens - 1) ** 0.5)
        patch = torch.arange(tokens - 1)
        found = []
        for table, place in ((self.rows, patch // along), (self.columns, patch % along)):
            between = (place[None] - place[:, None]).clamp(-self.distance, self.distance) + self.distance + 1
            found.append(table[functional.pad(between, (1, 0, 1, 0))])
        return found[0] + found[1]


class PlainBlock(nn.Module):
    def __init__(self, dim: int, heads: int, hidden: int, distance: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.keys, self.values = PlainTable(distance, dim // heads), PlainTable(distance, dim // heads)

    def forward(self, x: Tensor, heads: int, hidden: int) -> Tensor:
        batch, tokens, d = x.shape
        q = heads * 64
        y = functional.layer_norm(x, (d,), self.norm1.weight[:d], self.norm1.bias[:d])
        weight = torch.cat([self.qkv.weight[start : 3 * q : 3, :d] for start in range(3)])
        qkv = functional.linear(y, weight, self.qkv.bias[: 3 * q]).reshape(batch, tokens, 3, heads, 64)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attention = (query @ key.transpose(-2, -1)) * 64**-0.5
        turned = query.permute(2, 0, 1, 3).reshape(tokens, heads * batch, 64)
        relative = (turned @ self.keys(tokens).transpose(1, 2)).transpose(0, 1)
        attention = (attention + relative.reshape(batch, heads, tokens, tokens) * 64**-0.5).softmax(-1)
        y = (attention @ value).transpose(1, 2).reshape(batch, tokens, q)
        turned = attention.permute(2, 0, 1, 3).reshape(tokens, batch * heads, tokens)
        relative = (turned @ self.values(tokens)).transpose(0, 1).reshape(batch, heads, tokens, 64)
        y = y + relative.transpose(1, 2).reshape(batch, tokens, q)
        x = x + functional.linear(y, self.proj.weight[:d, :q], self.proj.bias[:d])
        y = functional.layer_norm(x, (d,), self.norm2.weight[:d], self.norm2.bias[:d])
        y = functional.gelu(functional.linear(y, self.fc1.weight[:hidden, :d], self.fc1.bias[:hidden]))
        return x + functional.linear(y, self.fc2.weight[:d, :hidden], self.fc2.bias[:d])


class PlainSupernet(nn.Module):
    """The whole space over one set of weights, as a reader of timm would write it."""

    def __init__(self, dim: int = 256, depth: int = 14, heads: int = 4, ratio: float = 4.0, distance: int = 14) -> None:
        from timm.layers.patch_embed import PatchEmbed

        super().__init__()
        self.patches = PatchEmbed(SIDE, 16, 3, dim)
        self.token = nn.Parameter(torch.zeros(1, 1, dim))
        self.positions = nn.Parameter(torch.zeros(1, 197, dim))
        self.blocks = nn.ModuleList(PlainBlock(dim, heads, int(dim * ratio), distance) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, CLASSES)

    def forward(self, images: Tensor, sizes: Any) -> Tensor:
        d = sizes.embedding
        convolution = self.patches.proj
        assert convolution.bias is not None
        x = functional.conv2d(images, convolution.weight[:d], convolution.bias[:d], 16).flatten(2).transpose(1, 2)
        x = torch.cat((self.token[..., :d].expand(len(x), -1, -1), x), 1) + self.positions[..., :d]
        for block, heads, hidden in zip(self.blocks, sizes.heads, sizes.hidden, strict=False):
            x = block(x, heads, hidden)
        x = functional.layer_norm(x, (d,), self.norm.weight[:d], self.norm.bias[:d])[:, 1:].mean(1)
        return functional.linear(x, self.head.weight[:, :d], self.head.bias)

    def take(self, network: nn.Module) -> None:
        """The weights of our supernet."""
        given = network.state_dict()
        names = {"norm1": "attention_norm", "norm2": "mlp_norm", "proj": "projection"}
        names |= {"keys.rows": "key_rows", "keys.columns": "key_columns"}
        names |= {"values.rows": "value_rows", "values.columns": "value_columns"}
        own = {}
        for name in self.state_dict():
            renamed = name.replace("token", "class_token").replace("patches.proj", "patches")
            if name.startswith("blocks."):
                _, number, rest = name.split(".", 2)
                for short, long in names.items():
                    rest = long + rest.removeprefix(short) if rest.startswith(short) else rest
                renamed = f"blocks.{number}.{rest}"
            own[name] = given[renamed]
        self.load_state_dict(own)


def _settings() -> Any:
    own = SPACES.get("autoformer").Network(drop_path=0.0)
    return network_settings(own, classes=CLASSES, image_channels=3, image_size=SIDE)


def step() -> Callable[[], object]:
    """Training as the harness does it, in the order of dimensions in which its loaders give images."""
    asked = {
        "space": "autoformer",
        "benchmark": None,
        "dataset": "imagenet",
        "method": "autoformer",
        "network": {"drop_path": 0.0},
        "train": {"epochs": 500, "batch_size": BATCH},
        "optimiser": {"name": "adamw", "learning_rate": RATE, "weight_decay": DECAY, "clip": None},
    }
    return our_turn(asked, _settings(), random_batch(BATCH, SIDE, CLASSES), paths("autoformer", PATHS), PATHS)


def plain_step() -> Callable[[], object]:
    """The same, plain, with torch's AdamW."""
    torch.manual_seed(0)
    network = PlainSupernet()
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    space: Any = SPACES.get("autoformer")()
    drawn = map(space.transformer, paths("autoformer", PATHS))
    return plain_turn(network, optimiser, random_batch(BATCH, SIDE, CLASSES), drawn, PATHS)
