"""The names of Sacred that the harness uses, imported once and quietly.

Sacred 0.8.7 imports `pkg_resources`, which warns that it is deprecated. The version is pinned, so the warning tells
the reader nothing.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="pkg_resources is deprecated", category=UserWarning)
    warnings.filterwarnings("ignore", message="Deprecated call to `pkg_resources", category=DeprecationWarning)
    from sacred import SETTINGS, Experiment
    from sacred.observers import RunObserver

__all__ = ["SETTINGS", "Experiment", "RunObserver"]
