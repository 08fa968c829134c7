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
