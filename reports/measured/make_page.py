"""The page of all measured tables, printed again from the archives beside this file.

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
PAGE = DOCS / "measured_tables.md"
FIGURE = "ablation_calr_ms-comparisons.svg"

REPORT = re.compile(r"(```\n(harness report [^\n]+)\n```\n\n)(.*?)(<!-- end of the report -->)", re.DOTALL)
"""The command with its block, what it printed, and the end."""


def fill(stores: Path) -> None:
    """Import all archives: those beside this file into the store `runs`, those of a folder into one of its name.

    Raises `HarnessError`.
    """
    for archive in sorted(FOLDER.rglob("*.tar.gz")):
        name = "runs" if archive.parent == FOLDER else archive.parent.name
        _run(["store", "import", str(archive), "--store", str(stores / name)])


def printed(command: str, stores: Path) -> str:
    """What the command prints about its store, without any table of truth at hand. Raises `HarnessError`."""
    words = shlex.split(command)[1:]
    if "--store" in words:
        place = words.index("--store") + 1
        words[place] = str(stores / words[place])
    else:
        words += ["--store", str(stores / "runs")]
    before = os.environ.get("HARNESS_BENCHMARKS")
    os.environ["HARNESS_BENCHMARKS"] = str(stores / "none")
    try:
        return _run(words)
    finally:
        os.environ.pop("HARNESS_BENCHMARKS") if before is None else os.environ.update(HARNESS_BENCHMARKS=before)


def _run(words: list[str]) -> str:
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        status = main(words)
    if status:
        raise HarnessError(f"harness {shlex.join(words)} ended with {status}: {errors.getvalue()}")
    return output.getvalue()


def made(text: str, stores: Path) -> str:
    """The page's text with every report as it is printed now."""
    return REPORT.sub(lambda found: f"{found[1]}{printed(found[2], stores)}\n{found[4]}", text)


def write() -> None:
    with tempfile.TemporaryDirectory() as folder:
        stores = Path(folder)
        fill(stores)
        PAGE.write_text(made(PAGE.read_text(), stores))
        out = stores / "figures"
        printed(f"harness report ablation_calr_ms --preset small --compare --out {out} --format markdown", stores)
        shutil.copyfile(out / FIGURE, DOCS / FIGURE)


if __name__ == "__main__":
    write()
