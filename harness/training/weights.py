"""Weights that supernets start from, of other code or of a stored run: read safely, checked, kept under a name.

A name ends with the beginning of the content's hash (`supernet-tiny-1a2b3c4d5e6f`). Configurations name weights so
(`train.weights`): trials that start from different weights have different identities, on every machine. A stored run
has a list: the weights of each of its supernets.
"""

from __future__ import annotations

import argparse
import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from harness.components.registries import SPACES
from harness.components.supernet import Published
from harness.data.places import weights_folder
from harness.documents import refusal
from harness.errors import DataError
from harness.files import read_regular, write

Weights = dict[str, torch.Tensor]

IMPORT = "import them with `harness weights import FILE --space SPACE`"
SHOWN = 5
"""How many wrong names a message lists."""


def read(file: Path) -> list[Weights]:
    """The tensors of a file: `.safetensors`, or torch's, alone or under the key `model`, or a run's `weights.pt`.

    There is one item per supernet. Runs no code of the file. Raises `DataError`.
    """
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return [dict(load_file(file))]
        with torch.serialization.safe_globals([argparse.Namespace]):  # the options of the training, in many files
            found = torch.load(file, map_location="cpu", weights_only=True)
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror or error})") from error
    except Exception as error:  # pickles raise anything
        raise DataError(f"{file}: not a file of tensors that can be read safely ({refusal(error)[:200]})") from error
    found = found.get("model", found) if isinstance(found, Mapping) else found
    parts = found if isinstance(found, list) else [found]
    if not parts or not all(map(_are_weights, parts)):
        raise DataError(f"{file}: holds no weights by name, neither alone nor under the key 'model'")
    return [dict(part) for part in parts]


def _are_weights(found: Any) -> bool:
    return isinstance(found, Mapping) and bool(found) and all(isinstance(one, torch.Tensor) for one in found.values())


def fitted(found: Mapping[str, torch.Tensor], space: str, settings: Any, what: str) -> Weights:
    """The weights of a supernet of that space, by its own names. Raises `DataError` that says what does not fit."""
    with torch.random.fork_rng(devices=[]):
        network = SPACES.get(space)().supernet(settings)
    weights = network.from_published(found) if isinstance(network, Published) else dict(found)
    check(weights, network, f"{what} is not a supernet of {space} with these settings")
    return {name: weights[name].to(own.dtype) for name, own in network.state_dict().items()}


def check(weights: Mapping[str, torch.Tensor], network: torch.nn.Module, wrong: str) -> None:
    """Raise `DataError` unless the weights have the names and shapes of the network's; `wrong` begins the message."""
    own = network.state_dict()
    shapes = [
        f"{name} is {_shape(weights[name])}, not {_shape(value)}"
        for name, value in own.items()
        if name in weights and weights[name].shape != value.shape
    ]
    missing, unknown = [one for one in own if one not in weights], [one for one in weights if one not in own]
    parts = (("missing", missing), ("unknown", unknown), ("of another shape", shapes))
    problems = [f"{kind}: {_some(names)}" for kind, names in parts if names]
    if problems:
        raise DataError(f"{wrong}. {'; '.join(problems)}")


def store(weights: Sequence[Weights], space: str, name: str) -> str:
    """Keep the weights of one supernet or several; returns the name that configurations use."""
    content = io.BytesIO()
    torch.save({"space": space, "weights": weights[0] if len(weights) == 1 else [*weights]}, content)
    full = f"{name}-{_hash(content.getvalue())}"
    path = _path(full)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, lambda file: file.write(content.getvalue()))
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error})") from error
    return full


def stored(name: str) -> tuple[str | None, list[Weights]]:
    """The space and the weights of that name. Those of a run do not say the space.

    Raises `DataError` if they are not here, or were changed.
    """
    path = _path(name)
    try:
        content = read_regular(path)
    except OSError as error:
        known = ", ".join(names()) or "none"
        raise DataError(f"train.weights: {name} is not in {path.parent} (there: {known}); {IMPORT}") from error
    if not name.endswith(f"-{_hash(content)}"):
        raise DataError(f"{path}: the content is not what its name says; {IMPORT}")
    document = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    if isinstance(document, list):
        return None, document
    weights = document["weights"]
    return str(document["space"]), weights if isinstance(weights, list) else [weights]


def names() -> list[str]:
    """The weights that are here."""
    return sorted(path.stem for path in weights_folder().glob("*.pt"))


def start_from(name: str, space: str, networks: tuple[torch.nn.Module, ...]) -> None:
    """Give supernets of that space the weights of that name."""
    of, parts = stored(name)
    if of not in (None, space):
        raise DataError(f"train.weights: {name} are weights of {of}; the trial's space is {space}")
    if len(parts) not in (1, len(networks)):
        raise DataError(f"train.weights: {name} are weights of {len(parts)} supernets; the trial has {len(networks)}")
    for number, network in enumerate(networks):
        weights = parts[number % len(parts)]
        check(weights, network, f"train.weights: {name} does not fit the trial's supernet")
        network.load_state_dict(weights)


def _path(name: str) -> Path:
    return weights_folder() / f"{name}.pt"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def _shape(tensor: torch.Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a number"


def _some(found: list[str]) -> str:
    more = len(found) - SHOWN
    return ", ".join(found[:SHOWN]) + (f" and {more} more" if more > 0 else "")
