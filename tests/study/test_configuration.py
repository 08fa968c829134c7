"""The run configuration: what is allowed, what is refused and how, and its canonical text."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.components.registries import CLUSTER_RULES, METHODS
from harness.errors import InvalidConfiguration, UnknownName
from harness.study.configuration import Network, Ranking, RunConfig, Training
from harness.study.reader import Component, read

Document = dict[str, Any]


def document(path: str, value: object) -> Document:
    """The configuration that sets only `path`."""
    *folders, leaf = path.split(".")
    whole: Document = {leaf: value}
    for folder in reversed(folders):
        whole = {folder: whole}
    return whole


def test_defaults_round_trip_through_json() -> None:
    plain = RunConfig().json()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert RunConfig.from_json(plain) == RunConfig.from_json({}) == RunConfig()
    assert RunConfig.from_json(plain).json() == plain
    assert plain["schedule"] == {"name": "cosine", "final": 0.0}


@pytest.mark.parametrize(
    ("wrong", "near", "listed"),
    [
        ({"trian": {}}, "train", "space, dataset, benchmark, method"),
        ({"train": {"epoch": 3}}, "epochs", "epochs, batch_size, first_step"),
        ({"optimiser": {"learningrate": 0.1}}, "learning_rate", "momentum, nesterov"),
        ({"schedule": {"name": "calr", "gamma": 2}}, None, "gamma_prime, function, complexity"),
        ({"clusters": {"name": "operation", "edge": 2}}, "edges", "edges, at"),
        ({"method": {"name": "spos", "split": 0}}, None, "none (the options of method 'spos'"),
    ],
)
def test_unknown_keys_are_refused_where_they_stand(wrong: Document, near: str | None, listed: str) -> None:
    with pytest.raises(InvalidConfiguration) as refusal:
        RunConfig.from_json(wrong)
    ((folder, inner),) = wrong.items()
    key = list(inner)[-1] if inner else None
    assert repr(f"{folder}.{key}" if key else folder) in str(refusal.value)
    assert (f"did you mean {near!r}?" in str(refusal.value)) == (near is not None)
    assert "Allowed: " in str(refusal.value) and listed in str(refusal.value)


@pytest.mark.parametrize(
    ("key", "name", "near"),
    [
        ("method", "spoz", "spos"),
        ("schedule", "cosin", "cosine"),
        ("clusters", "operations", "operation"),
        ("sampler", "unifrom", "uniform"),
        ("space", "nasbench-201", "nasbench201"),
        ("dataset", "digit", "digits"),
        ("benchmark", "digit", "digits"),
    ],
)
def test_unknown_names_suggest_the_nearest(key: str, name: str, near: str) -> None:
    with pytest.raises(UnknownName, match=f"{name}.*did you mean '{near}'.*Known: "):
        RunConfig.from_json({key: name})


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("train.epochs", "3"),
        ("train.epochs", True),
        ("train.epochs", 3.0),
        ("train.epochs", None),
        ("seed", 0.5),
        ("seed", False),
        ("space", 201),
        ("optimiser.nesterov", 1),
        ("optimiser.momentum", "0.9"),
        ("optimiser.learning_rate", True),
        ("optimiser.learning_rate", math.nan),
        ("optimiser.learning_rate", math.inf),
        ("optimiser.learning_rate", 10**400),
        ("optimiser.clip", math.nan),
        ("optimiser.clip", [5]),
        ("optimiser.weight_decay", None),
        ("rank.images", 12.5),
        ("schedule.gamma_prime", math.nan),
        ("schedule.gamma_prime", math.inf),
        ("clusters.at", 3),
        ("clusters.at", ["0"]),
        ("clusters.at", [True]),
        ("network", []),
        ("train", 3),
        ("rank", None),
        ("method", 1),
        ("method", ["spos"]),
        ("method", {}),
    ],
)
def test_wrong_types_are_refused_by_path_and_value(path: str, value: object) -> None:
    names = {"schedule": "calr", "clusters": "operation"}
    wrong = document(path, value)
    for key, inner in wrong.items():
        if key in names:
            inner["name"] = names[key]
    shown = value[0] if isinstance(value, list) and path == "clusters.at" else value
    with pytest.raises(InvalidConfiguration) as refusal:
        RunConfig.from_json(wrong)
    assert str(refusal.value).startswith(f"{path} must be ")
    assert str(refusal.value).endswith(f"not {shown!r}")


@pytest.mark.parametrize("whole", [[], None, "spos", 3])
def test_a_configuration_is_a_set_of_keys(whole: Any) -> None:
    with pytest.raises(InvalidConfiguration, match="the configuration must be a set of keys"):
        RunConfig.from_json(whole)


@pytest.mark.parametrize(
    ("path", "value", "allowed"),
    [
        ("train.epochs", 0, "at least 1"),
        ("train.batch_size", 0, "at least 1"),
        ("train.first_step", 2, "0 or 1"),
        ("train.weighting", "mean", "algorithm-2, loss"),
        ("train.label_smoothing", 1, "[0, 1)"),
        ("train.label_smoothing", -0.1, "[0, 1)"),
        ("optimiser.learning_rate", 0, "above 0"),
        ("optimiser.momentum", 1, "[0, 1)"),
        ("optimiser.momentum", -0.1, "[0, 1)"),
        ("optimiser.weight_decay", -1e-9, "not be negative"),
        ("optimiser.clip", 0, "above 0, or null"),
        ("optimiser.inactive", "frozen", "untouched, decay"),
        ("network.width", 0, "at least 1"),
        ("network.depth", 0, "at least 1"),
        ("network.batch_norm", "none", "batch-statistics"),
        ("rank.images", 0, "at least 1"),
        ("rank.batch_size", 0, "at least 1"),
        ("rank.candidates", 0, "at least 1, or null"),
        ("rank.selection", "best", "equal-width, equal-count"),
        ("rank.bins", 1, "at least 2"),
        ("schedule", {"name": "cosine", "final": 1.5}, "[0, 1]"),
        ("schedule", {"name": "polynomial", "power": 0}, "above 0"),
        ("schedule", {"name": "calr", "gamma_prime": 0}, "above 0"),
        ("schedule", {"name": "calr", "gamma_prime": -4}, "above 0"),
        ("schedule", {"name": "calr", "function": "sqrt"}, "log, linear, exp"),
    ],
)
def test_values_out_of_range_say_what_is_allowed(path: str, value: Any, allowed: str) -> None:
    if isinstance(value, dict):
        named, wrong = list(value.items())[-1]
    else:
        named, wrong = path, value
    with pytest.raises(InvalidConfiguration) as refusal:
        RunConfig.from_json(document(path, value))
    assert named in str(refusal.value) and allowed in str(refusal.value)
    assert repr(wrong) in str(refusal.value) or repr(float(wrong)) in str(refusal.value)


@pytest.mark.parametrize(
    "whole",
    [
        {"optimiser": {"momentum": 0, "weight_decay": 0, "clip": None}},
        {"train": {"epochs": 1, "batch_size": 1, "first_step": 0, "label_smoothing": 0}},
        {"rank": {"images": None, "candidates": None, "bins": 2}},
        {"rank": {"images": 1, "candidates": 1}},
        {"method": {"name": "fsnas", "split": None}},
        {"clusters": {"name": "operation", "at": None}},
        {"seed": -1},
    ],
)
def test_the_ends_of_each_range_are_allowed(whole: Document) -> None:
    found = RunConfig.from_json(whole).json()
    for key, inner in whole.items():
        assert found[key] == inner if not isinstance(inner, dict) else inner.items() <= found[key].items()


def test_whole_numbers_become_floats_and_lists_become_tuples() -> None:
    config = RunConfig.from_json(
        {"optimiser": {"learning_rate": 1, "clip": 5}, "clusters": {"name": "operation", "at": [0, 3]}}
    )
    assert type(config.optimiser.learning_rate) is float and type(config.optimiser.clip) is float
    assert config.clusters.build(CLUSTER_RULES, "clusters").at == (0, 3)
    assert config.json()["clusters"] == {"name": "operation", "edges": 1, "at": [0, 3]}


def test_a_component_without_a_required_option_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match=r"^method\.name is missing: it has no default, so give it a value$"):
        read(Component, {}, "method")


# Documents as users write them: any keys left out, components as a name or with some of their options.
rates = st.floats(1e-6, 10, allow_nan=False)
some = st.fixed_dictionaries
schedules = (
    st.sampled_from(["cosine", "constant", "calr"])
    | some({"name": st.just("calr")}, optional={"gamma_prime": rates, "function": st.sampled_from(["log", "exp"])})
    | some({"name": st.just("polynomial")}, optional={"power": st.integers(1, 4) | rates})
)
clusters = st.sampled_from(["none", "random"]) | some(
    {"name": st.just("operation")},
    optional={"edges": st.integers(1, 4), "at": st.none() | st.lists(st.integers(0, 5), max_size=3)},
)
documents = some(
    {},
    optional={
        "method": st.sampled_from(["spos", "fairnas"])
        | some({"name": st.just("fsnas")}, optional={"split": st.none() | st.integers(0, 5)}),
        "schedule": schedules,
        "clusters": clusters,
        "network": some({}, optional={"width": st.integers(1, 32), "depth": st.integers(1, 5)}),
        "train": some({}, optional={"epochs": st.integers(1, 300), "label_smoothing": st.floats(0, 0.5)}),
        "optimiser": some(
            {},
            optional={
                "learning_rate": rates | st.integers(1, 3),
                "weight_decay": st.sampled_from([0, 0.0, -0.0, 5e-4]),
                "nesterov": st.booleans(),
                "clip": st.none() | rates | st.integers(1, 9),
            },
        ),
        "rank": some({}, optional={"images": st.none() | st.integers(1, 500)}),
        "seed": st.integers(-(2**63), 2**63 - 1),
    },
)


def backwards(value: Any) -> Any:
    return {key: backwards(value[key]) for key in reversed(value)} if isinstance(value, dict) else value


def whole_numbers(value: Any) -> Any:
    """The same with 1 for every 1.0 that stands where numbers may be fractions."""
    if isinstance(value, dict):
        return {key: whole_numbers(inner) for key, inner in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value


@settings(max_examples=25, deadline=None)
@given(documents)
def test_equal_configurations_have_one_canonical_text(written: Document) -> None:
    config = RunConfig.from_json(written)
    spelled_out = config.json()
    for other in (backwards(written), spelled_out, backwards(spelled_out), whole_numbers(spelled_out)):
        assert RunConfig.from_json(other).canonical() == config.canonical()
        assert RunConfig.from_json(other) == config
    assert json.loads(config.canonical()) == spelled_out


def test_a_configuration_made_in_python_equals_one_read() -> None:
    """Studies are Python: 1 for 1.0, or an option spelled out, must not make another identity."""
    made = RunConfig(
        method=Component("fsnas"),
        schedule=Component("calr", {"gamma_prime": 2}),
        clusters=Component("operation", {"at": [0]}),
        network=Network(width=4),
        train=Training(epochs=2, label_smoothing=0),
        optimiser=Component("", {"learning_rate": 1, "clip": 5}),
        rank=Ranking(bins=20),
    )
    from_text = RunConfig.from_json(
        {
            "method": {"name": "fsnas", "split": None},
            "schedule": {"name": "calr", "gamma_prime": 2.0, "function": "log"},
            "clusters": {"name": "operation", "at": [0], "edges": 1},
            "network": {"width": 4},
            "train": {"epochs": 2},
            "optimiser": {"learning_rate": 1.0},
            "rank": {"bins": 20},
        }
    )
    assert made == from_text and made.canonical() == from_text.canonical()
    with pytest.raises(InvalidConfiguration, match=r"train\.epochs must be of type int, not 2\.5"):
        RunConfig(train=Training(epochs=2.5))  # type: ignore[arg-type]
    with pytest.raises(InvalidConfiguration, match="seed must be of type int"):
        RunConfig(seed="0")  # type: ignore[arg-type]


OTHER_TEXT = {
    "space": "toy",
    "dataset": "toy",
    "benchmark": "toy",
    "method.name": "fairnas",
    "schedule.name": "constant",
    "schedule.function": "linear",
    "schedule.complexity": "flops",
    "clusters.name": "none",
    "sampler.name": "by-complexity",
    "network.batch_norm": "tracked",
    "train.weighting": "loss",
    "optimiser.inactive": "decay",
    "rank.selection": "equal-count",
    "rank.complexity": "flops",
    "rank.top_share": 0.5,
    "rank.truth": "cifar10",
    "rank.selection_on": "cifar100",
}


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for key, inner in value.items():
        yield from leaves(inner, f"{path}.{key}" if path else key)


def changed(path: str, value: Any) -> Any:
    """Another allowed value for that key."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str) or path in OTHER_TEXT:
        return OTHER_TEXT[path]
    if isinstance(value, float):
        return value / 2 + 0.125
    return {"train.first_step": 0, "clusters.at": [1]}.get(path, 2 if value is None else value + 1)


def test_every_leaf_is_part_of_the_canonical_text(toy_project: Path) -> None:
    base = RunConfig.from_json({"method": "fsnas", "schedule": "calr", "clusters": "operation"})
    texts = {base.canonical()}
    paths = list(leaves(base.json()))
    assert len(paths) > 25
    for path, value in paths:
        other = copy.deepcopy(base.json())
        *folders, leaf = path.split(".")
        place = other
        for folder in folders:
            place = place[folder]
        if leaf == "name":  # another component has other options
            place.clear()
        place[leaf] = changed(path, value)
        texts.add(RunConfig.from_json(other).canonical())
    assert len(texts) == len(paths) + 1


def test_augmentations_are_complete_in_their_order() -> None:
    steps = ["flip", {"name": "mixup", "alpha": 1}, {"name": "flip", "probability": 0.25}]
    config = RunConfig.from_json({"train": {"augment": steps}, "retrain": {"augment": ["cutmix"]}})
    plain = config.json()
    assert plain["train"]["augment"] == [
        {"name": "flip", "probability": 0.5},
        {"name": "mixup", "alpha": 1.0},
        {"name": "flip", "probability": 0.25},
    ]
    assert plain["retrain"]["augment"] == [{"name": "cutmix", "alpha": 1.0}]
    assert RunConfig.from_json(json.loads(json.dumps(plain))) == config
    for wrong, message in (("mixpu", "did you mean 'mixup'"), ({"name": "mixup", "beta": 1}, r"train\.augment\.beta")):
        with pytest.raises((InvalidConfiguration, UnknownName), match=message):
            RunConfig.from_json({"train": {"augment": [wrong]}})
    section = {"order": {"name": "shuffled"}, "augment": []}
    assert RunConfig.from_json({"train": section}).canonical() == RunConfig().canonical()
    retrained = [RunConfig.from_json({"retrain": one}).canonical() for one in (section, {})]
    assert retrained[0] == retrained[1]


def test_a_component_that_is_no_dataclass_is_refused_with_its_place() -> None:
    class Plain:
        """No dataclass."""

    METHODS.register("plain")(Plain)
    try:
        with pytest.raises(InvalidConfiguration, match=r"'plain' \(.*test_configuration.py:\d+\) is not a dataclass"):
            RunConfig.from_json({"method": "plain"})
    finally:
        del METHODS.entries["plain"]
