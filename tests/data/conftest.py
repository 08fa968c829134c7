"""Shared by the tests of data sets: a folder for data and one for what is decoded from it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is HARNESS_DATA, with an empty cache beside it."""
    (folder := tmp_path / "data").mkdir()
    monkeypatch.setenv("HARNESS_DATA", str(folder))
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HARNESS_DATA_FOLDER", raising=False)
    return folder
