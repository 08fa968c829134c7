"""The page of measured results, printed again from the archives beside this file.

    python reports/measured/make_page.py

The page holds its own commands: a block with one `harness report …`, what it prints, and a comment that ends it. Text
between the reports is written by hand and stays. New archives need nothing but this command.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import tempfile
from pathlib import Path

from harness.cli import main
from harness.errors import HarnessError

FOLDER = Path(__file__).parent
DOCS = FOLDER.parents[1] / "docs"
PAGE = DOCS / "measured.md"
FIGURE = "ablation_calr_ms-comparisons.svg"

REPORT = re.compile(r"(```\n(harness report [^\n]+)\n```\n\n)(.*?)(<!-- end of the report -->)", re.DOTALL)
"""The command with its block, what it printed, and the end."""


def fill(store: Path) -> None:
    """Import all archives. Raises `HarnessError`."""
    for archive in sorted(FOLDER.glob("*.tar.gz")):
        _run(["store", "import", str(archive), "--store", str(store)])


def printed(command: str, store: Path) -> str:
    """What the command prints about the store, without any table of truth at hand. Raises `HarnessError`."""
    before = os.environ.get("HARNESS_BENCHMARKS")
    os.environ["HARNESS_BENCHMARKS"] = str(store / "none")
    try:
        return _run([*shlex.split(command)[1:], "--store", str(store)])
    finally:
        os.environ.pop("HARNESS_BENCHMARKS") if before is None else os.environ.update(HARNESS_BENCHMARKS=before)


def _run(words: list[str]) -> str:
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        status = main(words)
    if status:
        raise HarnessError(f"harness {shlex.join(words)} ended with {status}: {errors.getvalue()}")
    return output.getvalue()


def made(text: str, store: Path) -> str:
    """The page's text with every report as it is printed now."""
    return REPORT.sub(lambda found: f"{found[1]}{printed(found[2], store)}\n{found[4]}", text)


def write() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "runs"
        fill(store)
        PAGE.write_text(made(PAGE.read_text(), store))
        out = Path(folder) / "figures"
        printed(f"harness report ablation_calr_ms --preset small --compare --out {out} --format markdown", store)
        shutil.copyfile(out / FIGURE, DOCS / FIGURE)


if __name__ == "__main__":
    write()
