"""Accuracies from the benchmarks' own files: NAS-Bench-201 (`.pth`) and NATS-Bench topology (`.pickle.pbz2`).

Both are pickles, and a pickle can run any command while it is read. So both are read with an
allow-list of what such a file contains; anything else is refused, unless the user trusts the file. The
benchmarks' own packages interpret the contents: their `ArchResults` gives the mean of all trials after the
last epoch.
"""

from __future__ import annotations

import bz2
import collections
import importlib
import pickle
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from harness.documents import refusal
from harness.errors import DataError
from harness.truth.imported import Key
from harness.truth.listing import Listing

from .official import KEYS
from .pickles import ForeignName, RestrictedUnpickler, in_proportion

EPOCHS = 200
NATS_SUFFIX = ".pickle.pbz2"

MEASURED: Mapping[Key, tuple[str, str]] = {
    # Validation: trained on half of the training images. Test: on all of them.
    ("cifar10", "valid"): ("cifar10-valid", "x-valid"),
    ("cifar10", "test"): ("cifar10", "ori-test"),
    ("cifar100", "valid"): ("cifar100", "x-valid"),
    ("cifar100", "test"): ("cifar100", "x-test"),
    ("imagenet16-120", "valid"): ("ImageNet16-120", "x-valid"),
    ("imagenet16-120", "test"): ("ImageNet16-120", "x-test"),
}
"""The benchmark's own names for a training run and for the images that it is scored on."""


def read_official(path: Path, trust: bool = False) -> Listing:
    """The listing in an official `.pth` file of NAS-Bench-201. Raises `DataError`."""
    from nas_201_api import ArchResults

    document = _load_pth(path, trust)
    names, infos = _contents(path, document, "NAS-Bench-201")
    states = {number: _part(path, info, number, "full") for number, info in infos.items()}
    return _listing(
        path,
        "nas-bench-201",
        names,
        lambda number: states.get(number),
        ArchResults,
        f"nas-bench-201 {version('nas-bench-201')}",
    )


def read_nats(path: Path, trust: bool = False) -> Listing:
    """The listing in a NATS-Bench topology file, or in its folder of one file per architecture. Raises `DataError`."""
    try:
        package = importlib.import_module("nats_bench.api_utils")
    except ImportError as error:
        raise DataError(
            f"{path}: reading files of NATS-Bench needs its package, which is not installed: `pip install nats_bench`"
        ) from error
    epochs = str(EPOCHS)
    if path.is_dir():
        meta = path / f"meta{NATS_SUFFIX}"
        names, _ = _contents(meta, {"arch2infos": {}, **_mapping(meta, _load_pbz2(meta, trust))}, "NATS-Bench")

        def state(number: int) -> Any:
            file = path / f"{number:06d}{NATS_SUFFIX}"
            return _part(file, _load_pbz2(file, trust), number, epochs) if file.exists() else None
    else:
        names, infos = _contents(path, _load_pbz2(path, trust), "NATS-Bench")

        def state(number: int) -> Any:
            return _part(path, infos[number], number, epochs) if number in infos else None

    return _listing(path, "nats-bench", names, state, package.ArchResults, f"nats_bench {version('nats_bench')}")


def _listing(
    path: Path, kind: str, names: list[str], state: Callable[[int], Any], results: Any, reader: str
) -> Listing:
    columns: dict[Key, list[float]] = {key: [] for key in KEYS}
    known = []
    for number, name in enumerate(names):
        stored = state(number)
        if stored is None:  # named, but not trained: it will be missing
            continue
        known.append(name)
        try:
            architecture = results.create_from_state_dict(stored)
            if architecture.arch_str != name:
                raise ValueError(f"its results belong to {architecture.arch_str}")
            for key, (dataset, split) in MEASURED.items():
                if (epochs := architecture.get_total_epoch(dataset)) != EPOCHS:
                    raise ValueError(f"trained for {epochs} epochs on {dataset}, not {EPOCHS}")
                columns[key].append(float(architecture.get_metrics(dataset, split)["accuracy"]))
        except Exception as error:  # the package checks nothing and raises errors of many kinds
            reason = f"no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
            raise DataError(f"{path}: architecture {number} ({name}): {reason}") from error
    if not known:
        raise DataError(f"{path}: holds no results")
    found = re.search(r"v\d+_\d+", path.name)
    meanings = {key: f"{images} of {dataset}, {EPOCHS} epochs, mean" for key, (dataset, images) in MEASURED.items()}
    label = found[0] if found else None
    return Listing(path, kind, known, columns, version=label, reader=reader, epochs=EPOCHS, meanings=meanings)


def _contents(path: Path, document: Any, benchmark: str) -> tuple[list[str], dict[int, Any]]:
    document = _mapping(path, document)
    for key, kind in {"meta_archs": list, "arch2infos": dict}.items():
        if not isinstance(document.get(key), kind):
            raise DataError(f"{path}: not a file of {benchmark}: it has no {kind.__name__} {key!r}")
    return list(map(str, document["meta_archs"])), dict(document["arch2infos"])


def _mapping(path: Path, document: Any) -> dict[str, Any]:
    if not isinstance(document, dict):
        raise DataError(f"{path}: not a file of the benchmark: it holds {type(document).__name__}, not dict")
    return document


def _part(path: Path, info: Any, number: int, key: str) -> Any:
    if not isinstance(info, dict) or not isinstance(info.get(key), dict):
        raise DataError(f"{path}: architecture {number} has no results {key!r} ({EPOCHS} epochs)")
    return info[key]


def _harmless() -> dict[str, Any]:
    """Types in the benchmarks' files besides plain ones: numpy's scalars, under all names that numpy has used."""
    scalar = np.float64(0).__reduce__()[0]
    dtypes = {f"numpy.dtypes.{type(np.dtype(kind)).__name__}": type(np.dtype(kind)) for kind in ("f8", "f4", "i8")}
    return {
        "numpy.core.multiarray.scalar": scalar,
        "numpy._core.multiarray.scalar": scalar,
        "numpy.dtype": np.dtype,
    } | dtypes


def _load_pth(path: Path, trust: bool) -> Any:
    import torch

    try:
        with torch.serialization.safe_globals([(thing, name) for name, thing in _harmless().items()]):
            return torch.load(path, map_location="cpu", weights_only=not trust)
    except Exception as error:
        foreign = re.search(r"GLOBAL (\S+)|but got (.+)", str(error))
        if foreign and not trust and isinstance(error, pickle.UnpicklingError):
            raise _untrusted(path, foreign[1] or foreign[2]) from error
        raise _unreadable(path, error) from error


_CONTAINERS = {("collections", "OrderedDict"): collections.OrderedDict, ("builtins", "set"): set}
"""Types in pickles of NATS-Bench besides numbers, text, lists and dictionaries."""


def _load_pbz2(path: Path, trust: bool) -> Any:
    try:
        with bz2.open(path) as file, nullcontext() if trust else in_proportion(path):
            document = (pickle.Unpickler(file) if trust else RestrictedUnpickler(file, also=_CONTAINERS)).load()
            file.read()  # to the end: a truncated file may hold a complete pickle
            return document
    except ForeignName as error:
        raise _untrusted(path, error.name) from error
    except MemoryError as error:
        raise DataError(f"{path}: reading it takes far more memory than a file of its size needs") from error
    except Exception as error:  # damaged bytes make pickle raise any exception
        raise _unreadable(path, error) from error


def _untrusted(path: Path, name: str) -> DataError:
    return DataError(
        f"{path}: this pickle refers to {name}, which no file of this benchmark needs; reading it could run arbitrary "
        "code, so nothing was read. If you trust the source of the file, use --trust to read it without this check"
    )


def _unreadable(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: not a readable file of the benchmark ({refusal(error)[:300]})")
