"""Zero-cost proxies, each beside a slow computation of its definition that shares nothing with it but the network."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from torch import Tensor, nn
from torch.nn import functional

from harness.cli import main
from harness.components.proxy import Finder, NetworkProxy, NotApplicable
from harness.components.registries import DATASETS, SPACES
from harness.components.space import Architecture, network_settings
from harness.data.loading import loader_for
from harness.seeds import derive
from harness.study.configuration import RunConfig
from harness.training.stages.standalone import initialise
from harness.training.trial import run_reference
from tests.toy import toy_config, user_folder

SEED = 3
CONFIG = {
    "space": "nasbench201",
    "dataset": "digits",
    "benchmark": "digits",
    "network": {"width": 2, "depth": 1},
    "rank": {"bins": 5, "candidates": 4},
    "seed": SEED,
}


@cache
def scores(proxy: str) -> dict[Architecture, float]:
    outcome = run_reference(RunConfig.from_json(CONFIG), proxy)
    return {one: prediction.accuracy for one, prediction in outcome.predictions.items()}


def network_of(architecture: Architecture) -> tuple[Any, Tensor, Tensor]:
    """The stand-alone network of a class with its initial weights, and the batch, made by hand."""
    space, dataset = SPACES.get("nasbench201")(), DATASETS.get("digits")()
    settings = network_settings(space.Network(width=2, depth=1, batch_norm="tracked"), **dataset.inputs)
    network = space.standalone(space.network_class(architecture), settings)
    initialise(network, SEED)
    batch = loader_for(dataset, "train", 64, derive(SEED, "proxy data"), "cpu").batch(0)
    return network.train(), batch.images, batch.labels


def agrees(proxy: str, slow: Callable[[Any, Tensor, Tensor], float], tolerance: float = 1e-3, few: int = 3) -> None:
    """Compare the scores of some architectures, the first of them without any connection."""
    found = scores(proxy)
    space = SPACES.get("nasbench201")()
    connected = [one for one in found if space.is_connected(one)]
    for architecture in connected[:: max(1, len(connected) // few)][:few]:
        assert found[architecture] == pytest.approx(slow(*network_of(architecture)), rel=tolerance), architecture


def differences(network: Any, images: Tensor, labels: Tensor, step: float = 1e-6) -> list[tuple[Tensor, Tensor]]:
    """The weights with their gradients, by central differences of the loss in float64, one weight at a time."""
    network, images = network.double(), images.double()
    found = []
    with torch.no_grad():
        for weight in [one for one in network.parameters() if one.ndim > 1]:
            flat, slope = weight.view(-1) if weight.is_contiguous() else weight.data.flatten(), []
            assert flat.numel() == weight.numel()
            for place in np.ndindex(*weight.shape):
                before, losses = weight[place].item(), []
                for change in (step, -step):
                    weight[place] = before + change
                    losses.append(functional.cross_entropy(network(images), labels).item())
                weight[place] = before
                slope.append((losses[0] - losses[1]) / (2 * step))
            found.append((weight.clone(), torch.tensor(slope, dtype=torch.float64).view(weight.shape)))
    return found


def test_gradient_norm_and_snip_are_what_differences_of_the_loss_give() -> None:
    space = SPACES.get("nasbench201")()
    smallest = min((one for one in scores("snip") if space.is_connected(one)), key=space.complexity)
    pairs = differences(*network_of(smallest))
    norm = sum(math.sqrt((slope**2).sum().item()) for _, slope in pairs)
    assert scores("grad-norm")[smallest] == pytest.approx(norm, rel=1e-3)
    saliency = sum((weight * slope).abs().sum().item() for weight, slope in pairs)
    assert scores("snip")[smallest] == pytest.approx(saliency, rel=1e-3)


def test_synflow_is_what_removing_each_weight_takes_from_the_output() -> None:
    """R is linear in each weight: weight · ∂R/∂weight is R less R without that weight."""

    def slow(network: Any, images: Tensor, labels: Tensor) -> float:
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                vars(module)["forward"] = lambda x: x
        network = network.double()
        total = 0.0
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.abs_()
            ones = torch.ones(1, *images.shape[1:], dtype=torch.float64)
            whole = network(ones).sum().item()
            for weight in [one for one in network.parameters() if one.ndim > 1]:
                for place in np.ndindex(*weight.shape):
                    before = weight[place].item()
                    weight[place] = 0
                    total += whole - network(ones).sum().item()
                    weight[place] = before
        return math.log(total)

    agrees("synflow", slow, 1e-6, few=2)


def test_naswot_counts_the_relus_in_equal_states(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(network: Any, images: Tensor, labels: Tensor) -> float:
        outputs: list[Any] = []
        plain = torch.relu

        def kept(x: Tensor) -> Tensor:
            outputs.append(plain(x).flatten(1).numpy())
            return plain(x)

        with monkeypatch.context() as patch, torch.no_grad():
            patch.setattr(torch, "relu", kept)
            network(images)
        states = np.concatenate(outputs, 1) > 0
        count = len(images)
        kernel = np.zeros((count, count))
        for first in range(count):
            for second in range(count):
                kernel[first, second] = sum(np.equal(states[first], states[second]))
        return float(np.linalg.slogdet(kernel)[1])

    agrees("naswot", slow, 1e-4, few=2)


def test_zen_adds_the_variances_of_batch_normalisation_back() -> None:
    def slow(network: Any, images: Tensor, labels: Tensor) -> float:
        rng = torch.Generator().manual_seed(derive(SEED, "proxy", "zen"))
        variances: list[float] = []
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(generator=rng)
            x, noise = (torch.empty_like(images).normal_(generator=rng) for _ in range(2))
            features = []
            for inputs in (x, x + 0.01 * noise):
                value = network.stem_norm(network.stem(inputs))
                for block in network.blocks:
                    value = block(value) if hasattr(block, "shortcut") else block(value, network.architecture)
                features.append(torch.relu(network.last_norm(value)).numpy())
            for module in network.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.register_forward_pre_hook(
                        lambda module, inputs: variances.append(
                            np.mean([inputs[0][:, c].numpy().var() for c in range(inputs[0].shape[1])])
                        )
                    )
            network(x)
        change = np.mean([np.abs(one - other).sum() for one, other in zip(*features, strict=True)])
        return float(np.log(change) + sum(0.5 * np.log(one) for one in variances))

    agrees("zen", slow)


def az_features(network: Any, images: Tensor) -> tuple[list[Tensor], torch.Generator]:
    rng = torch.Generator().manual_seed(derive(SEED, "proxy", "az-nas"))
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, (2 / math.prod(parameter.shape[1:])) ** 0.5, generator=rng)
    value = network.stem_norm(network.stem(torch.empty_like(images).normal_(generator=rng)))
    features = [value]
    for block in network.blocks:
        value = block(value) if hasattr(block, "shortcut") else block(value, network.architecture)
        features.append(value)
    return features, rng


def az_entropies(network: Any, images: Tensor) -> list[float]:
    found = []
    for feature in az_features(network, images)[0]:
        channels = feature.detach().numpy().astype(float).transpose(1, 0, 2, 3).reshape(feature.shape[1], -1)
        singular = np.linalg.svd(channels - channels.mean(1, keepdims=True), compute_uv=False) ** 2
        shares = singular / singular.sum()
        found.append(-sum(share * math.log(share + 1e-8) for share in shares))
    return found


def test_az_nas_expressivity_and_progressivity_are_entropies_of_principal_components() -> None:
    agrees("az-expressivity", lambda network, images, labels: sum(az_entropies(network, images)))
    agrees("az-progressivity", lambda network, images, labels: min(np.diff(az_entropies(network, images))))


def test_az_nas_trainability_is_about_the_largest_singular_value_between_blocks() -> None:
    def slow(network: Any, images: Tensor, labels: Tensor) -> float:
        features, rng = az_features(network, images)
        found = []
        for before, after in zip(features, features[1:], strict=False):
            signs = torch.empty_like(after).bernoulli_(0.5, generator=rng) * 2 - 1
            back = torch.autograd.grad(after, before, signs, retain_graph=True)[0]
            if torch.equal(back, signs):
                return -math.inf
            side, step = after.shape[2], before.shape[2] // after.shape[2]
            matrix: Any = 0.0
            for image in range(len(images)):
                for row in range(side):
                    for column in range(side):
                        patch = back[image, :, row * step : (row + 1) * step, column * step : (column + 1) * step]
                        matrix = matrix + np.outer(patch.reshape(-1).numpy(), signs[image, :, row, column].numpy())
            largest = np.linalg.svd(matrix / (len(images) * side * side), compute_uv=False)[0]
            found.append(2 - largest - 1 / (largest + 1e-6))
        return float(sum(found) / len(found))

    space = SPACES.get("nasbench201")()
    found = scores("az-trainability")
    checked = 0
    for architecture in [one for one in found if space.is_connected(one)][::6]:
        expected = slow(*network_of(architecture))
        if math.isfinite(expected):
            assert found[architecture] == pytest.approx(expected, rel=1e-3)
            checked += 1
        else:
            assert found[architecture] == min(found.values())
    assert checked >= 2


def test_az_nas_adds_the_logarithms_of_ranks() -> None:
    parts = [scores(name) for name in ("az-expressivity", "az-progressivity", "az-trainability", "flops")]
    archs = list(parts[0])
    ranks = np.array([rankdata([part[one] for one in archs]) for part in parts]) / len(archs)
    assert [scores("az-nas")[one] for one in archs] == pytest.approx(np.log(ranks).sum(0).tolist())


def test_sizes_are_counted() -> None:
    space = SPACES.get("nasbench201")()
    for one, found in scores("convolutions-3x3").items():
        # The stem, four in the reductions, and one per edge and stage.
        assert found == 5 + 3 * space.network_class(one).count(3)
    assert all(found == space.complexity(one, "flops") for one, found in scores("flops").items())


def test_a_proxy_without_meaning_says_why(toy_project: Path) -> None:
    with pytest.raises(NotApplicable, match="no batch normalisation"):
        run_reference(toy_config(), "zen")
    with pytest.raises(NotApplicable, match="block_features"):
        run_reference(toy_config(), "az-nas")
    # One architecture of the toy has no ReLU: it ranks last, and the others have scores.
    found = {a: one.accuracy for a, one in run_reference(toy_config(), "naswot").predictions.items()}
    assert min(found, key=lambda one: found[one])[0] == 0 and len(set(found.values())) > 1


@pytest.mark.parametrize("space", ["mobilenet", "darts", "autoformer"])
def test_every_space_has_proxies(space: str) -> None:
    """Those of a transformer are gradients and sizes: it has no ReLU and no batch normalisation."""
    from harness.components.preset import get_preset
    from harness.components.registries import PROXIES
    from harness.study.expansion import expand
    from harness.study.layout import Column, Row
    from harness.study.study import Study
    from harness.training.proxies import ProxyScene

    study = Study("one", "", [Row({"": ""})], [Column("", "kendall_tau")], space=space)
    config = expand(study, get_preset("tiny", space), 1)[0].trial.config
    proxies = {name: PROXIES.get(name)() for name in PROXIES.names() if PROXIES.get(name).on_request}
    proxies = {name: one for name, one in proxies.items() if not isinstance(one, Finder)}  # they train networks
    together = [one for name, one in proxies.items() if isinstance(one, NetworkProxy) and name != "az-nas"]
    scene = ProxyScene(config, DATASETS.get(config.dataset)(), None, together=together)
    few = [scene.space.sample(random.Random(seed)) for seed in range(2)]
    applied = set()
    for name, proxy in proxies.items():
        try:
            found = proxy.predict(scene, few)
        except NotApplicable:
            continue
        assert all(math.isfinite(one) for one in found.values())
        applied.add(name)
    assert {"grad-norm", "snip", "convolutions-3x3"} <= applied
    assert ({"synflow", "naswot", "zen"} <= applied) == (space != "autoformer")
    assert ("az-nas" in applied) == (space == "mobilenet")


MINE = """
from harness.components.proxy import Proxy
from harness.components.registries import PROXIES


@PROXIES.register("last-choice")
class LastChoice(Proxy):
    '''The number of the last choice.'''

    label = "Last choice"

    def predict(self, scene, architectures):
        return {one: one[-1] for one in architectures}
"""


def test_a_proxy_of_ones_own_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with user_folder(tmp_path, {"methods/mine.py": MINE}):
        assert main(["list", "proxies"]) == 0
        assert "last-choice" in capsys.readouterr().out
        assert main(["check", "last-choice"]) == 0
        outcome = run_reference(RunConfig.from_json(CONFIG), "last-choice")
        assert {one: found.accuracy for one, found in outcome.predictions.items()} == {
            one: one[-1] for one in outcome.predictions
        }
