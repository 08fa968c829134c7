"""A benchmarking harness for neural architecture search. Importing it costs nothing: no torch, no numpy."""

__version__ = "0.2.0"
