"""Whether several processes can train a configuration together. Imports no torch."""

from __future__ import annotations

from harness.study.configuration import RunConfig


def check_ranks(config: RunConfig, ranks: int) -> None:
    """Whether several processes can train a configuration together. Imports no torch."""
