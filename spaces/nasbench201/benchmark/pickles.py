"""Reads the pickle files of benchmarks, of which no complete checksum is published, without executing anything in them.

A pickle is a program: it can name any callable and call it. The formats read here need dictionaries, lists, strings,
numbers, bytes and numpy arrays only. So every name but those of numpy's array protocol is refused, and even these do
not resolve to numpy: they resolve to the stand-ins below, which check their arguments and build the array themselves.
"""

from __future__ import annotations

import pickle
import pickletools
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from harness.errors import DataError

LEAST, PER_BYTE = 2**30, 100
"""Bytes of memory that reading a file may take: so many for any file, and so many for each of its bytes."""


def sound(content: bytes) -> bytes:
    """The content of a pickle, if it keeps objects where a writer keeps them: one after the other.

    Python's unpickler reserves memory up to the highest place, so that five damaged bytes could ask for all of it.
    """
    for count, (operation, place, _) in enumerate(pickletools.genops(content)):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and isinstance(place, int) and place > count:
            raise DataError("truncated, damaged or not a pickle (it keeps an object beyond its end)")
    return content


@contextmanager
def in_proportion(path: Path) -> Iterator[None]:
    """Let what is read from a file take memory in proportion to its size: `MemoryError` beyond that. On Linux only.

    For files that are too large for `sound`, which looks at every step of a pickle.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    try:
        reserved = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        yield
        return
    bounds = [reserved + max(LEAST, PER_BYTE * path.stat().st_size), soft, hard]
    least = min(bound for bound in bounds if bound != resource.RLIM_INFINITY)
    resource.setrlimit(resource.RLIMIT_AS, (least, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


class _Name:
    """What a name in a pickle resolves to. Has no attributes: nothing in a pickle can change it."""

    __slots__ = ()


class _ArrayType(_Name):
    """Stand-in for `numpy.ndarray`, which is only ever an argument."""

    __slots__ = ()


class _MakeType(_Name):
    """Stand-in for `numpy.dtype`."""

    __slots__ = ()

    def __call__(self, text: object, align: object = False, copy: object = False) -> _Type:
        return _Type(_text(text))


class _MakeArray(_Name):
    """Stand-in for `numpy.core.multiarray._reconstruct`."""

    __slots__ = ()

    def __call__(self, kind: object, shape: object, dtype: object) -> _Array:
        if not isinstance(kind, _ArrayType):
            raise DataError("holds an array of an unknown class")
        return _Array()


class _MakeScalar(_Name):
    """Stand-in for `numpy.core.multiarray.scalar`."""

    __slots__ = ()

    def __call__(self, dtype: object, raw: object) -> Any:
        return _array(dtype, (), raw, "C").item()


class _FromBuffer(_Name):
    """Stand-in for `numpy.core.numeric._frombuffer`, which later protocols use for arrays."""

    __slots__ = ()

    def __call__(self, raw: object, dtype: object, shape: object, order: object) -> _Array:
        return _Array(_array(dtype, shape, raw, _text(order)))


class _Encode(_Name):
    """Stand-in for `_codecs.encode`: how Python 3 writes bytes for Python 2."""

    __slots__ = ()

    def __call__(self, text: object, encoding: object) -> bytes:
        if not isinstance(text, str) or _text(encoding) not in ("latin1", "latin-1"):
            raise DataError("holds bytes in an unknown encoding")
        return text.encode("latin-1")


class _Type:
    """A type of numbers, by numpy's short name: "u1", "i8"."""

    __slots__ = ("order", "short")

    def __init__(self, short: str) -> None:
        self.short, self.order = short, "<"

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or state[2:5] != (None, None, None):
            raise DataError("holds an array of an unknown type")
        self.order = _text(state[1])

    def dtype(self) -> np.dtype[Any]:
        if self.short[:1] not in "biuf" or not self.short[1:].isdigit() or self.order not in ("<", ">", "|", "="):
            raise DataError(f"holds an array of the unknown type {self.short!r}")
        return np.dtype(self.order.replace("|", "") + self.short)


class _Array:
    """An array that may get its content later. A pickle has no access to real numpy arrays."""

    __slots__ = ("array",)

    def __init__(self, array: npt.NDArray[Any] | None = None) -> None:
        self.array = array

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise DataError("holds an array without its content")
        _, shape, dtype, fortran, raw = state
        if isinstance(raw, list) and isinstance(dtype, _Type) and dtype.short.startswith("O"):
            self.array = _texts(raw, shape, fortran)
            return
        self.array = _array(dtype, shape, raw, "F" if fortran else "C")


_NUMPY = {
    ("multiarray", "_reconstruct"): _MakeArray(),
    ("multiarray", "scalar"): _MakeScalar(),
    ("numeric", "_frombuffer"): _FromBuffer(),
}
_NAMES: dict[tuple[str, str], _Name] = {
    ("numpy", "ndarray"): _ArrayType(),
    ("numpy", "dtype"): _MakeType(),
    ("_codecs", "encode"): _Encode(),
    # numpy 2 moved its modules.
    **{(f"numpy.{core}.{module}", name): a for core in ("core", "_core") for (module, name), a in _NUMPY.items()},
}


class ForeignName(DataError):
    """A pickle asks for a name that is not on the list."""

    def __init__(self, name: str) -> None:
        super().__init__(f"refused: it asks for {name}, which no data file needs; nothing was run")
        self.name = name


class RestrictedUnpickler(pickle.Unpickler):
    """Reads plain types, numbers and arrays, and what `also` lists by module and name. Raises `ForeignName`."""

    def __init__(
        self, file: IO[bytes], encoding: str = "ASCII", also: Mapping[tuple[str, str], Any] | None = None
    ) -> None:
        super().__init__(file, encoding=encoding)
        self._names = {**_NAMES, **(also or {})}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self._names:
            raise ForeignName(f"{module}.{name}")
        return self._names[module, name]

    def persistent_load(self, identifier: Any) -> Any:
        raise DataError("refused: it refers to objects outside the file")


def _array(dtype: object, shape: object, raw: object, order: str) -> npt.NDArray[Any]:
    if not isinstance(dtype, _Type) or not isinstance(raw, bytes | bytearray) or order not in ("C", "F"):
        raise DataError("holds an array that is not made of plain numbers")
    if not isinstance(shape, tuple) or not all(isinstance(side, int) for side in shape):
        raise DataError("holds an array without a shape")
    return np.frombuffer(raw, dtype.dtype()).reshape(shape, order="F" if order == "F" else "C")


def _texts(raw: list[Any], shape: object, fortran: object) -> npt.NDArray[Any]:
    """An array of text, which a pickle holds as a list."""
    if not all(isinstance(one, str) for one in raw) or not isinstance(shape, tuple):
        raise DataError("holds an array of anything but numbers and text")
    return np.array(raw, dtype=object).reshape(shape, order="F" if fortran else "C")


def finished(value: Any) -> Any:
    """Arrays in place of their stand-ins."""
    if isinstance(value, _Array):
        if value.array is None:
            raise DataError("holds an array without its content")
        return value.array
    if isinstance(value, _Type | _Name):
        raise DataError("holds a type, not data")
    return value


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, str):
        return value
    raise DataError(f"has a {type(value).__name__} where text is expected")
