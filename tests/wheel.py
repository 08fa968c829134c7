"""The package as a user has it: built into a wheel, installed away from the checkout, and run by its command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from harness.environment import PROJECT

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]


def install(source: Path, site: Path) -> Path:
    """Build a wheel from a copy of the project in `source` and install it into `site`; its dependencies stay ours."""
    for name in ("harness", "methods", "spaces", "studies", "reports"):
        shutil.copytree(PROJECT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, source)
    wheel = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(source), str(source)]
    subprocess.run([*PIP, *wheel], check=True)
    (built,) = source.glob("*.whl")
    target = ["install", "--no-deps", "--no-index", "--no-compile", "--target", str(site), str(built)]
    subprocess.run([*PIP, *target], check=True)
    return site


def harness(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The installed command, run in a folder with nothing but the site-packages."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HARNESS_")}
    return subprocess.run(
        [str(site / "bin" / "harness"), *arguments],
        cwd=folder,
        env={**clean, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
