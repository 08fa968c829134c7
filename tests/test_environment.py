"""What a run was made on: real repositories in every state, and nothing private."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from harness import environment
from harness.environment import cpu_model, describe, git_state, packages


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_states_of_a_repository(tmp_path: Path) -> None:
    assert git_state(tmp_path) == (None, None)
    assert git_state(tmp_path / "missing") == (None, None)
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path) == (None, False)  # no commit yet
    (tmp_path / "a.py").write_text("a = 1\n")
    git(tmp_path, "add", "a.py")
    git(tmp_path, "commit", "-q", "-m", "a")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert git_state(tmp_path) == (commit, False)
    (tmp_path / "notes.txt").write_text("results lie about, too")
    assert git_state(tmp_path) == (commit, False)
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "mine.py").write_text("")
    assert git_state(tmp_path) == (commit, True)
    (tmp_path / "methods" / "mine.py").unlink()
    (tmp_path / "a.py").write_text("a = 2\n")
    assert git_state(tmp_path) == (commit, True)


def test_without_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(environment.PROJECT) == (None, None)


def test_the_description_is_plain_and_holds_nothing_private(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_MONGO", "mongodb://user:secret-word@lab/nas")
    describe.cache_clear()
    found = describe()
    text = json.dumps(found, allow_nan=False)
    assert "secret-word" not in text and str(environment.PROJECT) not in text and os.getcwd() not in text
    assert found["packages"] == packages() and {"torch", "sacred", "numpy"} <= found["packages"].keys()
    assert found["cpu"] == cpu_model() != ""
