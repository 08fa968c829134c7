"""A benchmarking harness for neural architecture search."""

from harness.components import moved

__version__ = "0.1.0"

moved.install()
