"""The networks: shapes, paths, calibration, stacked copies, squeeze-and-excitation, initial weights."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn

from harness.components.registries import SPACES
from harness.components.space import network_settings
from harness.components.supernet import Calibrated
from harness.errors import InvalidConfiguration
from harness.training.stages.standalone import initialise

SPACE: Any = SPACES.get("mobilenet")()
REDUCED: Any = SPACES.get("mobilenet-reduced")()


def sized(space: Any = REDUCED, size: int = 8, classes: int = 5, copies: int = 1, **network: Any) -> Any:
    own = space.Network(**network)
    return network_settings(own, classes=classes, image_channels=3, image_size=size, copies=copies)


def images(count: int = 4, size: int = 8, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


def supernet(**network: Any) -> Any:
    torch.manual_seed(0)
    return REDUCED.supernet(sized(**network))


def norms(network: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]


@pytest.mark.parametrize("size", [1, 7, 32])
def test_any_image_size_and_number_of_classes(size: int) -> None:
    network = SPACE.supernet(sized(SPACE, size, 3)).eval()
    assert network(images(2, size), SPACE.sample(random.Random(0))).shape == (2, 3)


def test_a_step_trains_the_paths_weights_and_no_others() -> None:
    network, path = supernet(), (0, 2, 1, 4, 2, 3, 0, 4)
    network(images(), path).sum().backward()
    trained = {name for name, parameter in network.named_parameters() if parameter.grad is not None}
    blocks = {name.split(".parts")[0] for name in trained if name.startswith("layers")}
    assert blocks == {"layers.0.0", "layers.2.1", "layers.4.2", "layers.5.3", "layers.6.0"}
    others = {name.split(".")[0] for name in trained}
    assert others == {"stem", "first", "layers", "head", "classifier"}


def test_a_skip_passes_its_input_on() -> None:
    """A path with skips is the same function as the chain of its other blocks."""
    network, path = supernet().eval(), (0, 2, 1, 4, 2, 3, 0, 4)
    x = images()
    for module in (
        network.stem,
        network.first,
        *(network.layers[n][str(c)] for n, c in enumerate(path) if n in (0, 2)),
    ):
        x = module(x)
    for n in (4, 5, 6):
        x = network.layers[n][str(path[n])](x)
    torch.testing.assert_close(network.classifier(network.head(x)), network(images(), path))


def test_inputs_are_added_where_shapes_agree() -> None:
    network = supernet()
    residual = [[block.residual for block in layer.values()][0] for layer in network.layers]
    assert residual == [False, True, False, True, True, False, True, True]
    block = network.layers[1]["0"].eval()
    for parameter in block.parts[-1].parameters():
        nn.init.zeros_(parameter)
    x = torch.randn(2, 12, 4, 4)
    assert torch.equal(block(x), x)


def test_a_standalone_network_computes_what_its_path_does() -> None:
    network, path = supernet().eval(), REDUCED.sample(random.Random(3))
    alone = REDUCED.standalone(path, sized()).eval()
    alone.load_state_dict({name: value for name, value in network.state_dict().items() if name in alone.state_dict()})
    torch.testing.assert_close(alone(images()), network(images(), path))


def test_copies_are_networks_of_their_own() -> None:
    path, one = REDUCED.sample(random.Random(4)), sized(squeeze=0.25)
    stacked = REDUCED.standalone(path, sized(squeeze=0.25, copies=2)).eval()
    x, y = images(seed=1), images(seed=2)
    both = stacked(torch.cat([x, y], 1))
    assert both.shape == (4, 2, 5)
    for number, own in enumerate((x, y)):
        single = REDUCED.standalone(path, one).eval()
        state = stacked.state_dict()
        single.load_state_dict(
            {name: state[name].chunk(2)[number] if state[name].ndim else state[name] for name in single.state_dict()}
        )
        torch.testing.assert_close(both[:, number], single(own))


def test_calibration_gives_a_path_the_statistics_of_the_images_and_leaves_no_trace() -> None:
    network, path = supernet(), REDUCED.sample(random.Random(5))
    network(images(16), path)  # some running statistics
    network.eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    batches = [images(8, seed=seed) for seed in (1, 2, 3)]
    assert all(isinstance(network, ability) for ability in (Calibrated,))
    plain = network(images(), path)
    with torch.no_grad(), network.calibrated(path, batches):
        calibrated = network(images(), path)
        stem = network.stem.convolution(torch.cat(batches))
        torch.testing.assert_close(network.stem.norm.running_mean, stem.mean((0, 2, 3)))  # batches of equal size
        assert not network.stem.norm.training
    assert not torch.allclose(plain, calibrated)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert {norm.momentum for norm in norms(network)} == {0.1} and not any(norm.training for norm in norms(network))


def test_calibration_undoes_itself_after_an_error() -> None:
    network, path = supernet().eval(), REDUCED.sample(random.Random(5))
    before = network.stem.norm.running_mean.clone()
    with pytest.raises(ZeroDivisionError), network.calibrated(path, [images()]):
        raise ZeroDivisionError
    assert torch.equal(network.stem.norm.running_mean, before) and network.stem.norm.momentum == 0.1


def test_statistics_of_the_batch_are_not_calibrated() -> None:
    network = supernet(batch_norm="batch-statistics").eval()
    assert not list(network.buffers())
    path, x = REDUCED.sample(random.Random(6)), images(8)
    assert not torch.allclose(network(x, path)[:4], network(x[:4], path))
    with (
        pytest.raises(InvalidConfiguration, match="batch-statistics keeps no statistics"),
        network.calibrated(path, [x]),
    ):
        pass
    assert REDUCED.alone(REDUCED.Network(batch_norm="batch-statistics")).batch_norm == "tracked"


def test_settings_reach_batch_normalisation_and_blocks() -> None:
    plain = supernet()
    assert {(norm.momentum, norm.eps, norm.affine) for norm in norms(plain)} == {(0.1, 1e-3, True)}
    alone = REDUCED.standalone((0,) * 8, sized(norm_momentum=0.01, squeeze=0.25))
    assert {norm.momentum for norm in norms(alone)} == {0.01}
    excitations = [name for name, _ in alone.named_modules() if name.endswith("excite")]
    assert len(excitations) == 9  # every block, the first included
    x = images()
    changed = alone.eval()(x)
    nn.init.constant_(alone.first.parts[1].excite.bias, -20)  # the first block now gives nothing
    assert not torch.allclose(alone(x), changed)


def test_initial_weights() -> None:
    torch.manual_seed(0)
    network = SPACE.standalone((5,) * 21, sized(SPACE))
    first = {name: value.clone() for name, value in network.state_dict().items()}
    initialise(network, 3)  # as stand-alone training makes them
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d):
            fan = module.kernel_size[0] ** 2 * module.out_channels
            expected = 0.01 if name == "classifier.linear" else (2 / fan) ** 0.5
            assert module.weight.std().item() == pytest.approx(expected, rel=0.1)
            assert not torch.equal(module.weight, first[f"{name}.weight"])
    assert not network.classifier.linear.bias.any()


def test_one_dimensional_parameters_may_have_no_decay() -> None:
    (everything,) = REDUCED.parameter_groups(supernet())
    others, flat = REDUCED.parameter_groups(supernet(norm_decay=False))
    assert len(everything["params"]) == len(others["params"]) + len(flat["params"])
    assert flat["weight_decay_factor"] == 0 and {one.ndim for one in flat["params"]} == {1}
    assert {one.ndim for one in others["params"]} == {4}


def test_the_supernet_of_speed_comparisons_is_the_same_function() -> None:
    """The one written with timm's blocks, given our weights, has our logits, in training and in evaluation."""
    from tests.perf.mobilenet import PlainSupernet

    settings = sized(SPACE, size=32)
    torch.manual_seed(0)
    ours = SPACE.supernet(settings)
    plain = PlainSupernet(SPACE.at(settings)._plan)
    plain.take(ours)
    rng = random.Random(0)
    for path in [SPACE.sample(rng) for _ in range(3)]:
        for training in (True, False):
            pair = [network.train(training)(images(8, 32), path) for network in (ours, plain)]
            torch.testing.assert_close(*pair, atol=1e-4, rtol=1e-4)
