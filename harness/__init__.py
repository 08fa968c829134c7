"""A benchmarking harness for neural architecture search. Importing it costs nothing: no torch, no numpy."""

__version__ = "0.1.0"
