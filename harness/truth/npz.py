"""Tables of ground truth as files: arrays and their provenance in one compressed `.npz`, without pickles.

The provenance is JSON text that says where the numbers come from, and their checksum. The module that
writes the arrays defines their meaning.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.errors import DataError
from harness.files import make_durable, make_folder, write

Arrays = Mapping[str, npt.NDArray[Any]]

FORMAT = 1


def checksum(arrays: Arrays) -> str:
    """SHA-256 of the arrays' bytes, in their order."""
    digest = hashlib.sha256()
    for array in arrays.values():
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def write_arrays(path: Path, arrays: Arrays, provenance: Mapping[str, Any]) -> None:
    """Write the file atomically: readers see the old one or the new one. Equal tables give equal bytes."""
    document = {**provenance, "format": FORMAT, "checksum": checksum(arrays)}
    make_folder(path.parent)
    text = np.array(json.dumps(document, sort_keys=True))
    write(path, lambda file: np.savez_compressed(file, provenance=text, **arrays))  # type: ignore[arg-type]
    make_durable(path.parent)


def read_arrays(path: Path, names: tuple[str, ...] | None, advice: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of these names (None: all), and the provenance.

    Raises `DataError` when the file is missing (with the advice), damaged or of a newer format.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            provenance = json.loads(str(stored["provenance"]))
            arrays = {name: stored[name] for name in names or stored.files if name != "provenance"}
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such table; {advice}") from error
    except Exception as error:  # numpy, zipfile and zlib raise many kinds of errors on damaged bytes
        raise DataError(f"{path}: not a readable benchmark table ({error or type(error).__name__})") from error
    if not isinstance(provenance, dict) or not isinstance(provenance.get("format"), int):
        raise DataError(f"{path}: not a benchmark table: its provenance has no format number")
    if provenance["format"] > FORMAT:
        raise DataError(f"{path}: made by a newer version (format {provenance['format']}, known: {FORMAT})")
    if checksum(arrays) != provenance.get("checksum"):
        raise DataError(f"{path}: damaged, its numbers do not match their checksum")
    return arrays, provenance
