"""Tables of measured latency: microseconds per layer and choice, in JSON files. Imports no torch.

Latency depends on the machine, and so do a search under a limit of it and a schedule by it. A table is therefore named
by its content, and configurations name the table (`latency-1a2b3c4d5e6f`): trials that rest on different measurements
have different identities, on every machine, whether the table is there or not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.data.places import LATENCY, latency_folder
from harness.documents import canonical
from harness.errors import DataError
from harness.files import write_json

PLAIN = "latency"
PREFIX = f"{PLAIN}-"


@dataclass(frozen=True)
class LatencyTable:
    """Medians in microseconds, with what was measured and on what."""

    space: str
    network: Mapping[str, Any]
    """The settings that the latency depends on."""
    measured: Mapping[str, Any]
    """The device, its threads, the version of torch, images per batch, repetitions."""
    shared: int
    """What all architectures have in common."""
    layers: tuple[tuple[int, ...], ...]
    """By decision and choice."""

    @property
    def count(self) -> str:
        """The name of this count in configurations, made of the table's content."""
        return PREFIX + hashlib.sha256(canonical(asdict(self)).encode()).hexdigest()[:12]

    def write(self) -> Path:
        """Store the table where `table_of` finds it."""
        folder = latency_folder()
        path = folder / f"{self.space}-{self.count}.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_json(path, asdict(self))
        except OSError as error:
            raise DataError(f"{path}: cannot be written ({error.strerror or error})") from error
        return path

    @classmethod
    def read(cls, path: Path) -> LatencyTable:
        """Raises `DataError` for a file that is not a table, or not the one that it is named after."""
        try:
            document = json.loads(path.read_text())
            table = cls(**{**document, "layers": tuple(tuple(map(int, own)) for own in document["layers"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path}: not a readable table of latencies ({error})") from error
        if path.name != f"{table.space}-{table.count}.json":
            raise DataError(f"{path}: the content is that of {table.count}; measure again, or rename the file")
        return table


def counts(space: str) -> list[str]:
    """The counts of a space whose tables are here. The files are not read: a damaged one is refused when it is used."""
    return sorted(path.stem.removeprefix(f"{space}-") for path in latency_folder().glob(f"{space}-{PREFIX}*.json"))


def table_of(space: str, count: str, network: Mapping[str, Any]) -> LatencyTable:
    """The table of that count, or for plain "latency" the only one for that network.

    Raises `DataError` if it is not here or was measured with another network.
    """
    here = counts(space)
    wanted = [count] if count in here else here if count == PLAIN else []
    found = {name: LatencyTable.read(latency_folder() / f"{space}-{name}.json") for name in wanted}
    fitting = {name: table for name, table in found.items() if dict(table.network) == dict(network)}
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    if fitting:
        raise DataError(f"{space} has several tables of latencies for this network; name one: {', '.join(fitting)}")
    if count in found:
        other = {key: value for key, value in found[count].network.items() if network.get(key) != value}
        asked = {key: network.get(key) for key in other}
        raise DataError(
            f"{count} was measured with {_shown(other)}, not with {_shown(asked)}; {_advice(space, network)}"
        )
    raise DataError(
        f"{count} of {space} is not measured here: no such table with {_shown(network)} in {latency_folder()} "
        f"({LATENCY}); {_advice(space, network)}"
    )


def _shown(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def _advice(space: str, network: Mapping[str, Any]) -> str:
    """The command that measures it."""
    inputs = {key: network[key] for key in ("image_size", "image_channels", "classes") if key in network}
    options = "".join(f" --{key.replace('_', '-')} {value}" for key, value in inputs.items())
    own = "".join(f" network.{key}={value}" for key, value in network.items() if key not in inputs)
    return f"measure it with: python -m harness benchmark latency {space}{options}{' with' + own if own else ''}"
