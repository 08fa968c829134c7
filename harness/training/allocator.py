"""Makes the C library keep freed memory. By default glibc returns large blocks to the system at once.

Every large tensor is such a block: torch would request new pages, which the system must clear, at every
operation. A training process keeps them instead.
"""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""glibc's names for mallopt: M_TRIM_THRESHOLD and M_MMAP_THRESHOLD."""

LARGEST = 1 << 30
"""Bytes; larger blocks are still allocated from the system and returned to it."""


def keep_freed_memory() -> bool:
    """Make this process reuse freed memory. Returns whether it does: only glibc is supported."""
    library = _glibc()
    if library is None:
        return False
    mallopt = library.mallopt
    mallopt.argtypes, mallopt.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int
    # glibc adapts its limits only while neither is set, so set both.
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST) and mallopt(_TRIM_THRESHOLD, LARGEST))


def return_freed_memory() -> None:
    """Return free memory to the system: all resident memory is then in use."""
    library = _glibc()
    if library is not None:
        library.malloc_trim(ctypes.c_size_t(0))


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  # raises if it is another library
    except (OSError, AttributeError):
        return None
    return library
