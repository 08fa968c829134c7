"""A benchmarking harness for neural architecture search. Importing it costs nothing: no torch, no numpy."""

from harness.components import moved

__version__ = "0.2.0"

moved.install()
