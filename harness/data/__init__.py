"""From files to arrays to batches, and the data sets that ship with the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.components.dataset import DataSet, Split

__all__ = ["DataSet", "Split"]


def __getattr__(name: str) -> Any:
    # Users' own data sets may import these from here; importing this package must cost nothing.
    if name in __all__:
        from harness.components import dataset

        return getattr(dataset, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
