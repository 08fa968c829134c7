"""Stand-alone training: a function of its arguments alone, copies that are networks of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from harness.components.registries import DATASETS, SPACES
from harness.components.space import NetworkSettings
from harness.errors import Diverged, InvalidConfiguration
from harness.training.stages.standalone import Correct, StandaloneRecipe, initialise, train_standalone

RECIPE = StandaloneRecipe(width=2, depth=1, epochs=3, batch_size=16)


def trained(architecture: tuple[int, ...] = (2, 1, 0), seed: int = 0, **more: Any) -> Correct:
    recipe = more.pop("recipe", RECIPE)
    return train_standalone(SPACES.get("toy")(), architecture, DATASETS.get("toy")(), recipe, seed, **more)


def test_counts_repeat_and_depend_on_the_seed(toy_project: Path) -> None:
    first = trained(copies=3)
    torch.rand(5)
    assert trained(copies=3) == first
    assert trained(copies=3, seed=1) != first
    assert len(first.valid) == len(first.test) == 3
    assert all(0 <= count <= 50 for count in first.valid) and all(0 <= count <= 60 for count in first.test)
    assert len(set(zip(first.valid, first.test, strict=True))) > 1  # copies differ in weights and data order


def test_the_global_generator_is_left_alone(toy_project: Path) -> None:
    before = torch.get_rng_state()
    assert len(trained().test) == 1
    assert torch.equal(torch.get_rng_state(), before)


def test_architectures_share_the_initial_weights_of_what_they_have_in_common(toy_project: Path) -> None:
    space = SPACES.get("toy")()
    networks = [
        space.standalone(architecture, NetworkSettings(width=2, image_channels=1))
        for architecture in space
        if architecture[0]
    ]
    for network in networks:
        initialise(network, 7)
    first, last = networks[0].state_dict(), networks[-1].state_dict()
    assert first.keys() & last.keys() == {"classifier.weight", "classifier.bias"}  # the rest is in one of them only
    for name in first.keys() & last.keys():
        assert torch.equal(first[name], last[name])
    initialise(networks[0], 8)
    assert not torch.equal(networks[0].state_dict()["classifier.weight"], last["classifier.weight"])


def test_divergence_is_an_error(toy_project: Path) -> None:
    with pytest.raises(Diverged):
        trained(recipe=StandaloneRecipe(width=2, depth=1, epochs=20, batch_size=8, learning_rate=1e8))


@pytest.mark.parametrize(
    ("field", "value"), [("width", 0), ("depth", 0), ("epochs", 0), ("batch_size", 0), ("learning_rate", 0.0)]
)
def test_impossible_recipes_are_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidConfiguration, match=f"{field} must be"):
        StandaloneRecipe(**{field: value})  # type: ignore[arg-type]
