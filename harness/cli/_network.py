"""The network that a command is about: a space, its settings after `with`, and the size of the images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def input_options(command: F) -> F:
    """The options of what goes in and what comes out."""
    for name, default in (("classes", 1000), ("image-channels", 3), ("image-size", 224)):
        text = "Side of the images." if name == "image-size" else None
        command = click.option(f"--{name}", default=default, show_default=True, type=click.IntRange(1), help=text)(
            command
        )
    return command


def settings_of(space: str, updates: Sequence[str], inputs: Mapping[str, int]) -> Any:
    """The settings of the networks. Raises `InvalidConfiguration` for an update of anything else."""
    from harness.components.space import network_settings
    from harness.errors import InvalidConfiguration
    from harness.study.configuration import as_network
    from harness.study.overrides import parse_updates

    own = parse_updates(updates)
    if wrong := [key for key in own if not key.startswith("network.")]:
        raise InvalidConfiguration(f"{', '.join(wrong)}: only settings of the network (network.KEY) matter here")
    network = as_network(space, {key.removeprefix("network."): value for key, value in own.items()}, "network")
    return network_settings(network, **inputs)
