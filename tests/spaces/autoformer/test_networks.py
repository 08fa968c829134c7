"""The networks: relative positions against their definition, subnets against stand-alone networks, gradients."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch.nn import functional

from harness.components.discovery import component
from harness.components.registries import SPACES
from harness.components.space import network_settings

attention: Any = component("spaces.autoformer.attention")
networks: Any = component("spaces.autoformer.networks")
REDUCED: Any = SPACES.get("autoformer-reduced")()


def settings(**network: Any) -> Any:
    return network_settings(REDUCED.Network(**network), classes=5, image_channels=2, image_size=8)


def supernet(**network: Any) -> Any:
    torch.manual_seed(0)
    made = REDUCED.supernet(settings(**network))
    for parameter in made.parameters():  # biases and the like are zero in a new network
        torch.nn.init.normal_(parameter, std=0.2)
    return made


def test_relative_positions_are_what_they_are_defined_as() -> None:
    """Every pair of patches by itself: distances in rows and columns, cut off; number 0 for the class token."""
    along, distance, size = 3, 1, 4
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, along**2 + 1, size, dtype=torch.double, requires_grad=True) for _ in range(3))
    tables = [torch.randn(2 * distance + 2, size, dtype=torch.double, requires_grad=True) for _ in range(4)]

    def plain(q: Any, k: Any, v: Any, *tables: Any) -> Any:
        patch = torch.arange(along**2)
        numbers = []
        for place in (patch // along, patch % along):
            between = (place[None] - place[:, None]).clamp(-distance, distance) + distance + 1
            numbers.append(functional.pad(between, (1, 0, 1, 0)))
        keys, values = (tables[n][numbers[0]] + tables[n + 1][numbers[1]] for n in (0, 2))
        scores = q @ k.transpose(1, 2) + torch.einsum("bid,ijd->bij", q, keys)
        weights = (scores * size**-0.5).softmax(-1)
        return weights @ v + torch.einsum("bij,ijd->bid", weights, values)

    def ours(q: Any, k: Any, v: Any, *tables: Any) -> Any:
        return attention.attend(q, k, v, *attention.Positions(along, distance).of(*tables))

    inputs = (q, k, v, *tables)
    torch.testing.assert_close(ours(*inputs), plain(*inputs))
    asked = torch.randn(2, along**2 + 1, size, dtype=torch.double)
    for own, theirs in zip(*(torch.autograd.grad(f(*inputs), inputs, asked) for f in (ours, plain)), strict=True):
        torch.testing.assert_close(own, theirs)


@torch.no_grad()
def inherit(network: torch.nn.Module, supernet: torch.nn.Module) -> None:
    """The supernet's weights for a stand-alone network: the leading part of each tensor."""
    given = dict(supernet.named_parameters())
    for name, own in network.named_parameters():
        own.copy_(given[name][tuple(slice(size) for size in own.shape)])


@pytest.mark.parametrize("network", [{}, {"pooling": "class-token", "patch_size": 2}, {"relative_distance": 0}])
def test_a_subnet_is_the_stand_alone_network_with_its_weights(network: dict[str, Any]) -> None:
    whole, images, rng = supernet(**network).eval(), torch.randn(3, 2, 8, 8), random.Random(0)
    seen = []
    for _ in range(6):
        one = REDUCED.sample(rng)
        alone = REDUCED.standalone(one, settings(**network)).eval()
        inherit(alone, whole)
        torch.testing.assert_close(whole(images, one), alone(images))
        seen.append(alone(images))
    assert not torch.allclose(seen[0], seen[1])


def test_heads_take_the_rows_that_released_supernets_give_them() -> None:
    """Weights of queries, keys and values take turns by row; their biases stand one behind the other."""
    block, x = supernet().blocks[0], torch.randn(2, 5, 24)
    d, width = 24, 24
    weight = torch.cat([block.qkv.weight[start : 3 * width : 3, :d] for start in range(3)])
    q, k, v = functional.linear(x, weight, block.qkv.bias[: 3 * width]).view(2, 5, 3, 3, 8).permute(2, 0, 3, 1, 4)
    y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 5, width)
    expected = functional.linear(y, block.projection.weight[:d, :width], block.projection.bias[:d])
    torch.testing.assert_close(block.attention(x, 3, None), expected)


def test_gradients_are_zero_beyond_the_path_and_missing_beyond_its_depth() -> None:
    whole = supernet()
    whole(torch.randn(2, 2, 8, 8), (0,) * 12).sum().backward()
    first, beyond = whole.blocks[0], whole.blocks[3]
    assert first.fc1.weight.grad[:84, :24].abs().min() > 0 and not first.fc1.weight.grad[84:].any()
    assert not first.fc1.weight.grad[:, 24:].any() and not whole.class_token.grad[..., 24:].any()
    assert all(parameter.grad is None for parameter in beyond.parameters())


def test_paths_are_dropped_in_training_only_and_repeatably() -> None:
    whole, images, one = supernet(drop_path=0.5), torch.randn(8, 2, 8, 8), (0,) * 12
    assert whole.stochastic and not supernet(drop_path=0.0).stochastic
    assert [block.drop for block in whole.blocks] == [0.0, 0.125, 0.25, 0.375, 0.5]

    def answer(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        logits: torch.Tensor = whole(images, one)
        return logits

    whole.train()
    assert torch.equal(answer(0), answer(0)) and not torch.equal(answer(0), answer(1))
    whole.eval()
    assert torch.equal(answer(0), answer(1))


def test_dropped_paths_are_timms() -> None:
    from timm.layers.drop import DropPath

    drop_path = DropPath(0.25)
    block, x = supernet(drop_path=0.5).blocks[2], torch.randn(16, 5, 8)
    torch.manual_seed(3)
    expected = drop_path(x)
    torch.manual_seed(3)
    assert torch.equal(block.dropped(x), expected)


def test_decay_is_for_matrices_only() -> None:
    whole = supernet()
    names = {id(parameter): name for name, parameter in whole.named_parameters()}
    decayed, others = REDUCED.parameter_groups(whole)
    assert others["weight_decay_factor"] == 0.0 and "weight_decay_factor" not in decayed
    kept = {names[id(one)] for one in others["params"]}
    assert {"class_token", "positions", "norm.weight", "head.bias", "blocks.0.qkv.bias"} <= kept
    assert "blocks.0.key_rows" not in kept and len(kept) + len(decayed["params"]) == len(names)


def test_half_precision() -> None:
    whole, images = supernet(drop_path=0.0), torch.randn(4, 2, 8, 8)
    exact = whole(images, (1,) * 12)
    with torch.autocast("cpu", torch.bfloat16):
        rough = whole(images, (1,) * 12)
        rough.float().sum().backward()
    assert torch.isfinite(whole.blocks[0].key_rows.grad).all()
    torch.testing.assert_close(rough.float(), exact, atol=0.5, rtol=0.1)


def test_the_plain_supernet_of_the_benchmarks_gives_the_same_logits() -> None:
    """It looks up the relative position of every pair of tokens, as research code does."""
    from tests.perf.autoformer import PlainSupernet

    space: Any = SPACES.get("autoformer")()
    own = space.supernet(space.settings).eval()
    plain = PlainSupernet().eval()
    plain.take(own)
    images, one = torch.randn(1, 3, 224, 224), space.sample(random.Random(0))
    with torch.no_grad():
        torch.testing.assert_close(own(images, one), plain(images, space.transformer(one)), atol=1e-5, rtol=1e-4)
