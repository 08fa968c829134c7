"""How the C library keeps freed memory. By default glibc returns large blocks to the system at once.

Every large tensor is such a block: torch would ask for fresh pages, which the system must clear, at every
operation. A training process keeps them instead.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""glibc's names for mallopt: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD."""

LARGEST = 1 << 30
"""Bytes; larger blocks still come from the system and go back to it."""


def keep_freed_memory() -> bool:
    """Have this process use freed memory again. Whether it could: only glibc is asked, and others do without."""
    library = _glibc()
    if library is None:
        return False
    mallopt = library.mallopt
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    # glibc grows its own limits only while nobody has set one: both are set, or neither.
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST) and mallopt(_TRIM_THRESHOLD, LARGEST))


def return_freed_memory() -> None:
    """Give back to the system what is free now: what is resident afterwards is in use."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(ctypes.c_size_t(0))


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  # raises where it is another library
    except (OSError, AttributeError):
        return None
    return library
