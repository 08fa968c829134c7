"""NAS-Bench-201 as networks: sizes, which architectures compute the same, dead edges, stacking.

What the symbolic keys and the counting formulas claim is checked here on real networks, small ones and
in float64, so that equal means equal to the last digits.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from harness.components.discovery import component
from harness.components.registries import SPACES
from harness.components.space import Architecture, NetworkSettings
from harness.errors import InvalidConfiguration
from tests.official_files import string_key

cell = component("spaces.nasbench201.cell")
classes = component("spaces.nasbench201.classes")
counts = component("spaces.nasbench201.counts")
networks = component("spaces.nasbench201.networks")

SPACE = SPACES.get("nasbench201")()
NONE, SKIP, CONV1X1, CONV3X3, POOL = range(5)
SMALL = NetworkSettings(width=4, depth=1, image_size=8)

# Rounding alone stays below the first, different functions above the second.
EQUAL = 1e-9
DIFFERENT = 1e-6

architectures = st.tuples(*[st.integers(0, 4)] * 6)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def function_classes() -> dict[Architecture, list[Architecture]]:
    """The members of each class, in order of their numbers."""
    members: dict[Architecture, list[Architecture]] = defaultdict(list)
    for architecture in SPACE:
        members[SPACE.function_class(architecture)].append(architecture)
    return members


@pytest.fixture(scope="module")
def network_classes() -> dict[Architecture, list[Architecture]]:
    """The function classes (their representatives) that make up each network class."""
    members: dict[Architecture, list[Architecture]] = defaultdict(list)
    for architecture in sorted({SPACE.function_class(architecture) for architecture in SPACE}):
        members[SPACE.network_class(architecture)].append(architecture)
    return members


def images(batch: int = 8, channels: int = 3, size: int = 8) -> Tensor:
    return torch.randn(batch, channels, size, size, dtype=torch.float64)


def shake(network: nn.Module) -> nn.Module:
    """Random values everywhere, in float64: fresh batch normalisation would hide wrong biases and scales."""
    network.double()
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                if module.affine:
                    module.weight.uniform_(0.5, 1.5)
                    module.bias.normal_()
                if module.running_mean is not None and module.running_var is not None:
                    module.running_mean.normal_()
                    module.running_var.uniform_(0.5, 1.5)
    return network


def standalone(architecture: Architecture, size: NetworkSettings = SMALL) -> nn.Module:
    return shake(SPACE.standalone(architecture, size))


def distance(first: Tensor, second: Tensor) -> float:
    """The largest difference, relative to the larger of 1 and the logits' size."""
    first, second = first.detach(), second.detach()
    return float((first - second).abs().max() / first.abs().max().clamp(min=1.0))


def trainable(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters() if parameter.requires_grad)


def live_convolutions(architecture: Architecture) -> list[int]:
    return [edge for edge in cell.live_edges(architecture) if architecture[edge] in (CONV1X1, CONV3X3)]


# --- size ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "architecture",
    [
        (NONE,) * 6,
        (CONV1X1,) * 6,
        (CONV3X3,) * 6,
        (CONV3X3, SKIP, POOL, CONV1X1, NONE, CONV3X3),
        (CONV3X3, NONE, CONV1X1, SKIP, NONE, NONE),  # both convolutions are dead, and counted
    ],
)
def test_the_published_parameter_count_is_that_of_the_real_network(architecture: Architecture) -> None:
    with torch.device("meta"):
        network = SPACE.standalone(architecture, NetworkSettings())
    assert trainable(network) == SPACE.complexity(architecture, "parameters")


def test_the_released_count_leaves_out_batch_normalisation_and_the_classifiers_bias() -> None:
    architecture = (CONV3X3, SKIP, POOL, CONV1X1, NONE, CONV3X3)
    with torch.device("meta"):
        network = SPACE.standalone(architecture, NetworkSettings())
    weights = sum(module.weight.numel() for module in network.modules() if isinstance(module, nn.Conv2d))
    assert weights == SPACE.complexity(architecture, "parameters-released")


def test_the_supernet_has_its_published_size() -> None:
    with torch.device("meta"):
        assert trainable(SPACE.supernet(NetworkSettings())) == 1_692_474


sizes = st.builds(
    NetworkSettings,
    width=st.integers(1, 9),
    depth=st.integers(1, 3),
    classes=st.integers(1, 20),
    image_channels=st.integers(1, 4),
    image_size=st.integers(1, 20),
)


@settings(deadline=None, max_examples=40)
@given(architecture=architectures, size=sizes)
def test_parameters_at_any_size(architecture: Architecture, size: NetworkSettings) -> None:
    with torch.device("meta"):
        network = SPACE.standalone(architecture, size)
    assert trainable(network) == counts.network_parameters(architecture, size)


def multiply_adds(network: nn.Module, size: NetworkSettings) -> tuple[int, int]:
    """Counted while the network runs: what it computes, and with what its cells hold but leave out."""
    computed = held = 0

    def after_convolution(module: nn.Module, _: Any, output: Tensor) -> None:
        nonlocal computed
        assert isinstance(module, nn.Conv2d)
        bias = 0 if module.bias is None else module.bias.numel()
        computed += (module.weight.numel() + bias) * output.shape[2] * output.shape[3]

    def before_cell(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        nonlocal held
        dead = set(range(6)) - set(cell.live_edges(inputs[1]))
        for name, convolution in module.named_parameters():
            if name.endswith("convolution.weight") and int(name.split(".")[1].partition("_")[0]) in dead:
                held += convolution.numel() * inputs[0].shape[2] * inputs[0].shape[3]

    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(after_convolution)
        elif isinstance(module, networks.Cell):
            module.register_forward_pre_hook(before_cell)
    with torch.no_grad():
        network.eval()(torch.zeros(1, size.image_channels, size.image_size, size.image_size))
    return computed, computed + held


@settings(deadline=None, max_examples=40)
@given(architecture=architectures, size=sizes)
def test_multiply_adds_at_any_size(architecture: Architecture, size: NetworkSettings) -> None:
    _, total = multiply_adds(SPACE.standalone(architecture, size), size)
    assert total == counts.network_flops(architecture, size)


@pytest.mark.parametrize(
    ("architecture", "dead_conv1x1"),
    [((CONV3X3, CONV1X1, SKIP, CONV1X1, POOL, CONV3X3), 0), ((CONV3X3, NONE, CONV1X1, SKIP, SKIP, NONE), 1)],
)
def test_multiply_adds_at_the_published_size(architecture: Architecture, dead_conv1x1: int) -> None:
    size = NetworkSettings()
    computed, total = multiply_adds(SPACE.standalone(architecture, size), size)
    assert total == SPACE.complexity(architecture, "flops") == counts.network_flops(architecture, size)
    assert computed == total - 3_932_160 * dead_conv1x1


# --- equal functions of the supernet --------------------------------------------------------------


@pytest.fixture(scope="module")
def supernet() -> nn.Module:
    torch.manual_seed(1)
    network: nn.Module = SPACE.supernet(SMALL).double()
    return network.train()


def logits(network: nn.Module, x: Tensor, wanted: list[Architecture]) -> Tensor:
    with torch.no_grad():
        return torch.stack([network(x, architecture).flatten() for architecture in wanted])


def test_members_of_a_function_class_give_equal_logits(
    supernet: nn.Module, function_classes: dict[Architecture, list[Architecture]]
) -> None:
    shared = [members for members in function_classes.values() if len(members) > 1]
    x = images()
    for members in random.Random(0).sample(shared, 60):
        some = [members[0], *random.Random(1).sample(members[1:], min(3, len(members) - 1))]
        outputs = logits(supernet, x, some)
        assert max(distance(outputs[0], other) for other in outputs[1:]) < EQUAL, some


def test_different_function_classes_give_different_logits(supernet: nn.Module) -> None:
    """Random architectures and a near neighbour of each: over 100,000 pairs, the near ones being the hard ones."""
    rng = random.Random(3)
    drawn = [SPACE.sample(rng) for _ in range(400)]
    drawn += [SPACE.neighbour(architecture, 1, rng) for architecture in drawn]
    different = sorted({SPACE.function_class(architecture) for architecture in drawn})
    assert len(different) > 500
    outputs = logits(supernet, images(), different)
    apart = torch.cdist(outputs, outputs, p=float("inf")).fill_diagonal_(1.0)
    first, second = divmod(int(apart.argmin()), len(different))
    assert apart.min() > DIFFERENT, (different[first], different[second])


def plain_logits(network: Any, x: Tensor, architecture: Architecture) -> Tensor:
    """The benchmark's network spelled out over the supernet's weights: every edge is computed, none is 0·x."""

    def normalise(value: Tensor) -> Tensor:
        return functional.batch_norm(value, None, None, training=True)

    def convolve(block: Any, value: Tensor, stride: int = 1) -> Tensor:
        layer = block.convolution
        padding = layer.weight.shape[-1] // 2
        return normalise(functional.conv2d(value.relu(), layer.weight, layer.bias, stride, padding))

    def average(value: Tensor) -> Tensor:
        """3×3 means over the pixels that exist."""
        ones = torch.ones_like(value[:1, :1])
        kernel = value.new_ones(value.shape[1], 1, 3, 3)
        summed = functional.conv2d(value, kernel, padding=1, groups=value.shape[1])
        return summed / functional.conv2d(ones, kernel[:1], padding=1)

    x = normalise(functional.conv2d(x, network.stem.weight, padding=1))
    for place, block in enumerate(network.blocks):
        if place in (1, 3):  # depth 1: cell, reduction, cell, reduction, cell
            main = convolve(block.second, convolve(block.first, x, stride=2))
            pixels = (x[:, :, ::2, ::2] + x[:, :, 1::2, ::2] + x[:, :, ::2, 1::2] + x[:, :, 1::2, 1::2]) / 4
            x = main + functional.conv2d(pixels, block.shortcut.weight)
            continue
        nodes = [x, torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x)]
        for number, (target, source) in enumerate([(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)]):
            value, operation = nodes[source], architecture[number]
            if operation in (CONV1X1, CONV3X3):
                value = convolve(block.convolutions[f"{number}_{operation}"], value)
            elif operation == POOL:
                value = average(value)
            nodes[target] = nodes[target] + value * (operation != NONE)
        x = nodes[3]
    features = normalise(x).relu().mean((2, 3))
    return functional.linear(features, network.classifier.weight.flatten(1), network.classifier.bias)


@settings(deadline=None, max_examples=60)
@given(architecture=architectures)
def test_the_supernet_computes_what_the_benchmark_does(supernet: nn.Module, architecture: Architecture) -> None:
    x = images()
    with torch.no_grad():
        assert distance(supernet(x, architecture), plain_logits(supernet, x, architecture)) < EQUAL


def test_without_a_path_the_logits_are_constant(supernet: nn.Module) -> None:
    dead = (CONV3X3, CONV3X3, CONV3X3, NONE, NONE, NONE)
    outputs = logits(supernet, images(), [(NONE,) * 6, dead])
    assert torch.equal(outputs[0], outputs[1])
    rows = outputs[0].view(8, -1)
    assert torch.equal(rows, rows[:1].expand_as(rows))


# --- equal stand-alone networks -------------------------------------------------------------------


def carry_over(giver: nn.Module, taker: nn.Module, edges: dict[int, int]) -> None:
    """Give `taker` the giver's weights; its edge e takes those of the giver's edge `edges[e]`."""
    given_state, state = giver.state_dict(), taker.state_dict()
    for name in state:
        block, inside, rest = name.partition(".convolutions.")
        if not inside:
            state[name] = given_state[name]
            continue
        edge, _, rest = rest.partition("_")
        if int(edge) in edges:
            state[name] = given_state[f"{block}{inside}{edges[int(edge)]}_{rest}"]
    taker.load_state_dict(state)


def renamings(first: Architecture, second: Architecture) -> Iterator[dict[int, int]]:
    """Every way to give each live convolution of `second` one of `first`, of the same kind, each once."""
    ways = []
    for kind in (CONV1X1, CONV3X3):
        of_first = [edge for edge in live_convolutions(first) if first[edge] == kind]
        of_second = [edge for edge in live_convolutions(second) if second[edge] == kind]
        if len(of_first) != len(of_second):
            return
        ways.append([dict(zip(of_second, order, strict=True)) for order in permutations(of_first)])
    for conv1x1, conv3x3 in product(*ways):
        yield {**conv1x1, **conv3x3}


def smallest_distance(first: Architecture, second: Architecture) -> float:
    """Between the outputs of two networks, over all renamings of their convolutions."""
    one, other, x = standalone(first), standalone(second), images()
    best = float("inf")
    with torch.no_grad():
        expected = one.eval()(x)
        for edges in renamings(first, second):
            carry_over(one, other, edges)
            best = min(best, distance(expected, other.eval()(x)))
    return best


@pytest.mark.usefixtures("network_classes")  # builds the tables once, before the clock runs
def test_isomorphic_cells_over_different_edges_are_one_network() -> None:
    first, second = (CONV1X1, 0, 0, SKIP, CONV3X3, 0), (0, CONV1X1, 0, SKIP, 0, CONV3X3)
    assert SPACE.network_class(first) == SPACE.network_class(second)
    one, other, x = standalone(first), standalone(second), images()
    carry_over(one, other, {1: 0, 5: 4})
    assert distance(one(x), other(x)) < EQUAL  # training mode
    assert distance(one.eval()(x), other.eval()(x)) < EQUAL


def test_members_of_a_network_class_compute_the_same_after_renaming(
    network_classes: dict[Architecture, list[Architecture]],
) -> None:
    several = [members for members in network_classes.values() if len(members) > 1]
    for members in random.Random(5).sample(several, 25):
        first, second = random.Random(6).sample(members, 2)
        assert smallest_distance(first, second) < EQUAL, (first, second)


def test_different_network_classes_compute_otherwise_under_every_renaming(
    network_classes: dict[Architecture, list[Architecture]],
) -> None:
    """Pairs with the same number of live convolutions of each kind, or there would be nothing to rename."""
    by_kinds: dict[tuple[int, ...], list[Architecture]] = defaultdict(list)
    for architecture in network_classes:
        by_kinds[tuple(sorted(architecture[edge] for edge in live_convolutions(architecture)))].append(architecture)
    alike = [members for kinds, members in sorted(by_kinds.items()) if 1 <= len(kinds) <= 3 and len(members) > 1]
    rng = random.Random(7)
    for members in alike * 4:
        first, second = rng.sample(members, 2)
        assert DIFFERENT < smallest_distance(first, second) < float("inf"), (first, second)


@pytest.mark.parametrize(
    ("once", "twice", "tied"),
    [
        # 2·conv(x) against conv_a(x) + conv_b(x)
        ((CONV3X3, NONE, SKIP, NONE, SKIP, SKIP), (NONE, CONV3X3, NONE, CONV3X3, NONE, SKIP), {1: 0, 3: 0}),
        # The same where one of the two uses feeds another convolution
        ((CONV1X1, NONE, SKIP, NONE, SKIP, CONV3X3), (NONE, CONV1X1, NONE, CONV1X1, NONE, CONV3X3), {1: 0, 3: 0, 5: 5}),
    ],
)
def test_one_shared_convolution_is_not_two_though_the_string_rule_says_so(
    once: Architecture, twice: Architecture, tied: dict[int, int]
) -> None:
    assert string_key(once) == string_key(twice)
    assert SPACE.network_class(once) != SPACE.network_class(twice)
    shared, free, x = standalone(once).eval(), standalone(twice).eval(), images()
    carry_over(shared, free, tied)
    assert distance(shared(x), free(x)) < EQUAL  # only as long as both have one set of weights
    for own in (1, 3):
        free = standalone(twice).eval()
        carry_over(shared, free, {edge: source for edge, source in tied.items() if edge != own})
        assert distance(shared(x), free(x)) > DIFFERENT


# --- dead edges -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("architecture", "live"),
    [
        ((CONV3X3, NONE, CONV1X1, CONV3X3, NONE, NONE), {3}),  # into nodes that nothing uses
        ((NONE, NONE, CONV1X1, CONV1X1, CONV3X3, CONV3X3), {3}),  # out of nodes that are always zero
        ((CONV3X3, NONE, CONV3X3, NONE, SKIP, NONE), {0}),
        ((CONV1X1, CONV3X3, CONV1X1, CONV3X3, CONV1X1, CONV3X3), {0, 1, 2, 3, 4, 5}),
        ((CONV3X3, CONV3X3, CONV3X3, NONE, NONE, NONE), set()),
    ],
)
@pytest.mark.parametrize("kind", ["supernet", "standalone"])
def test_only_operations_that_reach_the_output_get_a_gradient(
    architecture: Architecture, live: set[int], kind: str
) -> None:
    if kind == "supernet":
        network = SPACE.supernet(SMALL).double()
        output = network(images(), architecture)
    else:
        network = standalone(architecture)
        output = network(images())
    torch.autograd.backward(functional.cross_entropy(output, torch.arange(8)))
    seen = set()
    for name, parameter in network.named_parameters():
        _, in_cell, rest = name.partition(".convolutions.")
        if not in_cell:
            continue
        edge, operation = map(int, rest.partition(".")[0].split("_"))
        if edge in live and architecture[edge] == operation:
            assert parameter.grad is not None, name
            if name.endswith("convolution.weight"):
                assert parameter.grad.abs().max() > 0, name
                seen.add(edge)
        else:
            assert parameter.grad is None, name
    assert seen == live


@pytest.fixture(scope="module")
def tracked() -> nn.Module:
    torch.manual_seed(2)
    return shake(SPACE.supernet(replace(SMALL, batch_norm="tracked"))).eval()


@pytest.mark.parametrize(
    ("architecture", "without"),
    [
        ((NONE, NONE, CONV3X3, SKIP, NONE, SKIP), (NONE, NONE, NONE, SKIP, NONE, NONE)),  # would add its bias
        ((NONE, SKIP, NONE, NONE, CONV1X1, SKIP), (NONE, SKIP, NONE, NONE, NONE, SKIP)),  # would add its bias
        ((CONV3X3, NONE, NONE, POOL, NONE, NONE), (NONE, NONE, NONE, POOL, NONE, NONE)),
    ],
)
def test_a_dead_convolution_adds_nothing_not_even_a_bias(
    tracked: nn.Module, architecture: Architecture, without: Architecture
) -> None:
    outputs = logits(tracked, images(), [architecture, without])
    assert torch.equal(outputs[0], outputs[1])


@settings(deadline=None, max_examples=60)
@given(architecture=architectures)
def test_dead_edges_might_as_well_be_none(tracked: nn.Module, architecture: Architecture) -> None:
    live = cell.live_edges(architecture)
    bare = tuple(choice if edge in live else NONE for edge, choice in enumerate(architecture))
    outputs = logits(tracked, images(), [architecture, bare])
    assert torch.equal(outputs[0], outputs[1])


# --- settings -------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(architecture=architectures, size=sizes, batch_norm=st.sampled_from(["batch-statistics", "benchmark", "tracked"]))
def test_any_size_runs(architecture: Architecture, size: NetworkSettings, batch_norm: str) -> None:
    size = replace(size, batch_norm=batch_norm)
    x = torch.randn(2, size.image_channels, size.image_size, size.image_size)
    for output in (SPACE.supernet(size)(x, architecture), SPACE.standalone(architecture, size)(x)):
        assert output.shape == (2, size.classes)
        assert torch.isfinite(output).all()


@pytest.mark.parametrize("image_size", [8, 9, 15])
@pytest.mark.parametrize("image_channels", [1, 3])
def test_the_image_halves_rounded_up(image_size: int, image_channels: int) -> None:
    size = NetworkSettings(width=4, depth=1, classes=7, image_size=image_size, image_channels=image_channels)
    network: Any = SPACE.standalone((CONV3X3, SKIP, POOL, CONV1X1, SKIP, POOL), size)
    shapes = []
    for block in network.blocks:
        block.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape[1:])))
    assert network(torch.randn(2, image_channels, image_size, image_size)).shape == (2, 7)
    half = -(-image_size // 2)
    quarter = -(-half // 2)
    stages = [(4, image_size), (8, half), (8, half), (16, quarter), (16, quarter)]
    assert shapes == [(channels, side, side) for channels, side in stages]


PLAIN = (False, False, True)  # affine, running statistics, bias of the convolution before it
FULL = (True, True, False)


@pytest.mark.parametrize(
    ("batch_norm", "cells", "elsewhere"),
    [("batch-statistics", PLAIN, PLAIN), ("benchmark", PLAIN, FULL), ("tracked", FULL, FULL)],
)
def test_batch_normalisation_of_the_supernet(
    batch_norm: str, cells: tuple[bool, ...], elsewhere: tuple[bool, ...]
) -> None:
    network = SPACE.supernet(NetworkSettings(width=4, depth=2, batch_norm=batch_norm))
    check_norms(network, cells, elsewhere, convolutions=2 * 3 * 12 + 2 * 2)


@pytest.mark.parametrize("batch_norm", ["batch-statistics", "benchmark", "tracked"])
def test_batch_normalisation_of_a_standalone_network_is_always_full(batch_norm: str) -> None:
    network = SPACE.standalone((CONV3X3,) * 6, NetworkSettings(width=4, depth=2, batch_norm=batch_norm))
    check_norms(network, FULL, FULL, convolutions=2 * 3 * 6 + 2 * 2)


def check_norms(network: Any, cells: tuple[bool, ...], elsewhere: tuple[bool, ...], convolutions: int) -> None:
    found = 0
    for block in network.blocks:
        expected = cells if isinstance(block, networks.Cell) else elsewhere
        for module in block.modules():
            if isinstance(module, networks.Convolution):
                found += 1
                assert (*flags(module.norm), module.convolution.bias is not None) == expected
    assert found == convolutions
    for norm in (network.stem_norm, network.last_norm):
        assert flags(norm) == elsewhere[:2]
    # One by one: the stem's and the shortcuts' convolutions have no bias in any of them, the classifier has.
    assert network.stem.bias is None
    assert network.classifier.bias is not None
    shortcuts = [block.shortcut for block in network.blocks if isinstance(block, networks.Reduction)]
    assert [shortcut.bias for shortcut in shortcuts] == [None, None]


def flags(norm: nn.BatchNorm2d) -> tuple[bool, bool]:
    assert (norm.weight is not None) == norm.affine
    assert (norm.running_mean is not None) == norm.track_running_stats
    return norm.affine, norm.track_running_stats


def test_batch_statistics_are_used_in_evaluation_too() -> None:
    network, x = SPACE.supernet(SMALL).double(), images()
    architecture = (CONV3X3, SKIP, POOL, CONV1X1, SKIP, POOL)
    assert torch.equal(network.train()(x, architecture), network.eval()(x, architecture))
    assert not list(network.buffers())


def test_an_unknown_batch_normalisation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidConfiguration) as refusal:
        SPACE.Network(batch_norm="group")
    for word in ("network.batch_norm", "'group'", "'batch-statistics'", "'benchmark'", "'tracked'"):
        assert word in str(refusal.value)


@pytest.mark.parametrize("name", ["width", "depth", "classes", "image_channels", "image_size", "copies"])
def test_sizes_start_at_one(name: str) -> None:
    with pytest.raises(InvalidConfiguration, match=f"network.{name} must be at least 1, not 0"):
        replace(SMALL, **{name: 0})  # type: ignore[arg-type]


# --- stacking -------------------------------------------------------------------------------------

SINGLE = replace(SMALL, classes=5)
STACKED = replace(SINGLE, copies=3)
EVERY_OPERATION = (CONV3X3, CONV1X1, SKIP, POOL, CONV1X1, CONV3X3)


def stack(singles: list[nn.Module], stacked: nn.Module) -> None:
    """Put the weights of the single networks side by side into the stacked one."""
    states = [single.state_dict() for single in singles]
    stacked.load_state_dict(
        {
            name: torch.cat([state[name] for state in states]) if value.dim() else value
            for name, value in states[0].items()
        }
    )


@pytest.mark.parametrize("mode", ["training", "evaluation"])
def test_a_stacked_network_is_its_copies_side_by_side(mode: str) -> None:
    singles = [standalone(EVERY_OPERATION, SINGLE).train(mode == "training") for _ in range(3)]
    stacked = standalone(EVERY_OPERATION, STACKED).train(mode == "training")
    stack(singles, stacked)
    inputs = [images() for _ in range(3)]  # the images of copy k are the k-th three channels
    labels = [torch.randint(5, (8,)) for _ in range(3)]

    together = stacked(torch.cat(inputs, 1))
    assert together.shape == (8, 3, 5)
    torch.autograd.backward([functional.cross_entropy(together[:, k], labels[k]) for k in range(3)])
    for k, single in enumerate(singles):
        alone = single(inputs[k])
        assert distance(alone, together[:, k]) < EQUAL
        torch.autograd.backward(functional.cross_entropy(alone, labels[k]))

    for name, parameter in stacked.named_parameters():
        grads = [single.get_parameter(name).grad for single in singles]
        assert parameter.grad is not None and all(grad is not None for grad in grads)
        assert distance(torch.cat([grad for grad in grads if grad is not None]), parameter.grad) < EQUAL, name
    for name, buffer in stacked.named_buffers():  # running statistics
        if buffer.dim():
            assert distance(torch.cat([single.get_buffer(name) for single in singles]), buffer) < EQUAL, name


def test_stacked_copies_do_not_touch_each_other() -> None:
    network, x = standalone(EVERY_OPERATION, STACKED), images(channels=9)
    before = network(x)
    x[:, 3:6] = images()
    after = network(x)
    assert torch.equal(before[:, [0, 2]], after[:, [0, 2]])
    assert distance(before[:, 1], after[:, 1]) > DIFFERENT


def test_stacked_copies_start_as_single_networks_do() -> None:
    """Same bounds of the uniform initialisation, and copies that differ."""
    single = SPACE.standalone(EVERY_OPERATION, NetworkSettings(width=16, depth=1)).state_dict()
    stacked = SPACE.standalone(EVERY_OPERATION, NetworkSettings(width=16, depth=1, copies=3)).state_dict()
    for name in ("stem.weight", "classifier.weight", "blocks.0.convolutions.0_3.convolution.weight"):
        copies = stacked[name].chunk(3)
        assert not torch.equal(copies[0], copies[1])
        for copy in copies:
            assert copy.shape == single[name].shape
            assert float(copy.abs().max()) == pytest.approx(float(single[name].abs().max()), rel=0.1)


def test_a_stacked_supernet_is_its_copies_side_by_side() -> None:
    singles = [SPACE.supernet(SINGLE).double() for _ in range(3)]
    stacked = SPACE.supernet(STACKED).double()
    stack(singles, stacked)
    inputs = [images() for _ in range(3)]
    together = stacked(torch.cat(inputs, 1), EVERY_OPERATION)
    for k, single in enumerate(singles):
        assert distance(single(inputs[k], EVERY_OPERATION), together[:, k]) < EQUAL
