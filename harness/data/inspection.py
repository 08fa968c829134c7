"""Which data sets are present, and whether their content is right: for `harness data`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from harness.components.dataset import SPLITS, DataSet, LoadDataSet
from harness.components.registries import DATASETS
from harness.data.source import FileDataSet, Missing
from harness.errors import DataError


@dataclass(frozen=True)
class Presence:
    """Overview of one data set, made without decoding it."""

    name: str
    state: str
    """embedded, own code (the user's), present, not decoded (present, but never used), missing or incomplete."""
    images: str
    where: str
    advice: str = ""
    """How to get it, or what is wrong."""


@dataclass(frozen=True)
class Inspection:
    """Findings about one data set, after reading all of it."""

    facts: dict[str, str]
    warnings: list[str]
    problems: list[str]


def presences() -> list[Presence]:
    """All data sets, by name."""
    return [_presence(name) for name in DATASETS.names()]


def image_counts(name: str) -> dict[str, int] | None:
    """How many images the splits of a data set have; None if that cannot be known here. Decodes nothing."""
    thing = DATASETS.get(name)
    try:
        if not isinstance(thing, FileDataSet):
            return _loaded_counts(thing)
        record = thing.known_record(thing.find())
        return thing.sizes() if record is None else record.counts
    except Missing:
        return thing.sizes() if isinstance(thing, FileDataSet) else None
    except DataError:
        return None


def counts_at_hand(name: str) -> dict[str, int] | None:
    """The same, without loading a data set of a user's own, which may take long."""
    thing = DATASETS.get(name)
    return image_counts(name) if isinstance(thing, FileDataSet) or _is_embedded(name) else None


def inspect(name: str) -> Inspection:
    """Read all of a data set and check what can be checked. Raises `UnknownName`."""
    thing = DATASETS.get(name)
    try:
        if not isinstance(thing, FileDataSet):
            dataset: DataSet = thing()
            facts = {"made by": DATASETS.entries[name].origin, **_facts(dataset)}
            return Inspection({**facts, "checksum": dataset.checksum()}, [], [])
        found = thing.found()
        warnings, problems = thing.check_files(found)
        stale, damaged = thing.refresh(found)
        folder, record = thing.prepared(found)
        about = {"found in": f"{found.root} ({found.layout})", "division": record.about["split"]}
        facts = {**about, **_facts(thing.load(folder, record)), "decoded in": str(folder), "checksum": record.checksum}
        return Inspection(facts, warnings + stale, problems + damaged)
    except DataError as error:
        return Inspection({}, [], [str(error)])


def _presence(name: str) -> Presence:
    thing = DATASETS.get(name)
    if not isinstance(thing, FileDataSet):
        embedded = _is_embedded(name)
        # A user's own data set may take long to load.
        images = _counts(_loaded_counts(thing)) if embedded else ""
        return Presence(name, "embedded" if embedded else "own code", images, str(DATASETS.entries[name].file))
    try:
        found = thing.find()
    except Missing as missing:
        return Presence(name, "missing", "", " or ".join(map(str, missing.places)), missing.advice)
    except DataError as error:
        return Presence(name, "incomplete", "", "", str(error))
    where = f"{found.root} ({found.layout})"
    record = thing.known_record(found)
    if record is None:
        return Presence(name, "not decoded", "", where)
    return Presence(name, "present", _counts(record.counts), where)


def _is_embedded(name: str) -> bool:
    return DATASETS.entries[name].file.parent == Path(__file__).parent


@lru_cache(maxsize=32)
def _loaded_counts(load: LoadDataSet) -> dict[str, int]:
    return _sizes(load())


def _facts(dataset: DataSet) -> dict[str, str]:
    shape = "×".join(map(str, dataset.train.shape))
    augmentation = f"crops of {dataset.crop_padding} pixels" if dataset.crop_padding else "no crops"
    return {
        "images": _counts(_sizes(dataset)),
        "shape": f"{shape}, {dataset.classes} classes",
        "normalised": f"mean {_numbers(dataset.mean)}, deviation {_numbers(dataset.std)}",
        "training": augmentation + (", mirrored" if dataset.flip else ""),
    }


def _sizes(dataset: DataSet) -> dict[str, int]:
    return {split: len(getattr(dataset, split)) for split in SPLITS}


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {split}" for split, count in counts.items())


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:g}" for value in values)
