"""A trial, its owner and its name as stored text, and texts of a certain form. Imports nothing of the house."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, TypedDict


@dataclass(frozen=True)
class Form:
    """What a text must be besides text."""

    word: str
    fits: Callable[[str], bool]


def _is_time(text: str) -> bool:
    try:
        return bool(datetime.fromisoformat(text))
    except ValueError:
        return False


TIME = Form("a time in ISO format", _is_time)
NUMBER = Form("a whole number as text", lambda text: text.isascii() and text.isdigit() and len(text) <= 1000)

Number = Annotated[str, "a whole number as text", NUMBER]
Json = dict[str, Any]


class Named(TypedDict):
    """A component: its name, with its options beside it."""

    name: Annotated[str, "the name"]


class RankedOn(TypedDict):
    """What readers need of the section `rank`."""

    images: Annotated[int | None, "the number of images ranked on; null for all"]
    batch_size: Annotated[int, "images per batch"]


class Configured(TypedDict):
    """What readers need of a configuration; `harness.study.configuration` defines all of it."""

    seed: Annotated[int, "the seed"]
    space: Annotated[str, "the space"]
    dataset: Annotated[str, "the data set"]
    method: Annotated[Named, "the method"]
    optimiser: Annotated[Json, "the optimiser"]
    rank: Annotated[RankedOn, "how it is ranked"]
    observe: Annotated[Json, "what is observed"]


class Config(Configured, total=False):
    """A configuration."""

    benchmark: Annotated[str | None, "the benchmark that judges"]


class TrialKeys(TypedDict):
    """The keys of every trial."""

    config: Annotated[Config, "the configuration"]
    parent: Annotated[str | None, "the search that the trial starts from: its key and its ranking's"]


class TrialText(TrialKeys, total=False):
    """A trial as text (`harness.study.trial.Trial.json`)."""

    images: Annotated[str | None, "the fingerprint of its images"]


class OwnerKeys(TypedDict):
    """The keys of every owner."""

    host: Annotated[str, "the machine's name"]
    pid: Annotated[int, "the process's number"]
    started: Annotated[int | None, "when it started, in kernel ticks"]


class Owner(OwnerKeys, total=False):
    """The process that made a run, or holds a claim (`harness.owner`)."""

    boot: Annotated[str | None, "the id of the machine's boot"]
    pid_namespace: Annotated[str | None, "its PID namespace"]


ASKED = "asked"
"""The key of `info.json` that holds the run's naming."""


class Naming(TypedDict):
    """What studies call a run (`harness.study.naming`): in its `info.json`, and in the database."""

    rows: Annotated[dict[str, str], "by study that asks for it, the name of its row; the first to ask comes first"]
    metrics: Annotated[list[str], "the metrics that the first of these rows shows, in the order of its columns"]
    ranking: Annotated[str | None, "the key of the ranking that gives them"]


NOBODY: Naming = {"rows": {}, "metrics": [], "ranking": None}
"""The naming of a run that no known study asks for."""


def title(naming: Naming, otherwise: str) -> str:
    """The name of a run: that of the first row that asked for it, as "STUDY: LABELS OF THE ROW"."""
    return next((f"{study}: {row}" for study, row in naming["rows"].items()), otherwise)
