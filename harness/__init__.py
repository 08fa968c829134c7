"""A benchmarking harness for neural architecture search."""

from harness.components import moved

__version__ = "0.2.0"

moved.install()
