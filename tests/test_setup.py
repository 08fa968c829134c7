"""`make setup`: which Python makes `.venv`, and when it is made again."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

PYTHON = """#!/bin/sh
case "$2" in
    *version_info*) echo {version} ;;
    venv) rm -rf .venv && mkdir -p .venv/bin && cp {itself} .venv/bin/python && echo {version} >> made ;;
    pip) echo {version} >> installed ;;
esac
"""
"""An interpreter of that version: all that the set-up calls, without the download of 5 GB."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    for version in ("3.10", "3.11", "3.12"):
        file = tmp_path / f"python{version}"
        file.write_text(PYTHON.format(version=version, itself=file))
        file.chmod(0o755)
    return tmp_path


def setup(project: Path, python: str | None = None, default: str = "3.11") -> subprocess.CompletedProcess[str]:
    """`make setup` where `python3` has the version `default`."""
    (project / "bin").mkdir(exist_ok=True)
    (project / "bin" / "python3").unlink(missing_ok=True)
    (project / "bin" / "python3").symlink_to(project / f"python{default}")
    named = [] if python is None else [f"PYTHON={project / f'python{python}'}"]
    around = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS", "MAKELEVEL")}
    around["PATH"] = f"{project / 'bin'}:{around['PATH']}"
    return subprocess.run(["make", "setup", *named], cwd=project, env=around, capture_output=True, text=True)


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def test_an_unsupported_python_is_named_and_nothing_is_made(project: Path) -> None:
    done = setup(project, default="3.10")
    assert done.returncode != 0 and not (project / ".venv").exists()
    assert "python3 is Python 3.10; 3.11 or newer is needed: make setup PYTHON=" in done.stderr


def test_an_environment_of_an_unsupported_python_is_rebuilt(project: Path) -> None:
    (project / ".venv" / "bin").mkdir(parents=True)
    (project / ".venv" / "bin" / "python").symlink_to(project / "python3.10")
    (project / ".venv" / ".stamp-dev").touch()
    done = setup(project)
    assert done.returncode == 0, done.stderr
    assert ".venv is rebuilt: its Python is 3.10, the new one is 3.11" in done.stdout
    assert lines(project / "made") == ["3.11"] and lines(project / "installed") == ["3.11"]


def test_an_environment_whose_python_does_not_run_is_rebuilt(project: Path) -> None:
    assert setup(project).returncode == 0
    (project / ".venv" / "bin" / "python").unlink()
    (project / ".venv" / "bin" / "python").symlink_to(project / "uninstalled")
    done = setup(project)
    assert done.returncode == 0, done.stderr
    assert ".venv is rebuilt: its Python is broken, the new one is 3.11" in done.stdout
    assert lines(project / "made") == ["3.11", "3.11"]


def test_an_environment_is_rebuilt_for_another_python_that_is_named_and_for_no_other(project: Path) -> None:
    assert setup(project).returncode == 0
    assert setup(project, default="3.12").returncode == 0 and lines(project / "installed") == ["3.11"]
    assert setup(project, "3.11").returncode == 0 and lines(project / "installed") == ["3.11"]
    assert setup(project, "3.12").returncode == 0 and lines(project / "made") == ["3.11", "3.12"]
    assert setup(project).returncode == 0 and lines(project / "installed") == ["3.11", "3.12"]
