"""How fast the harness is, as ratios against plain code in the same run, and how costs grow.

    python -m tests.perf [--only step data] [--out DIR] [--no-growth]
    python -m tests.perf --only operations     # what a step launches on a GPU, counted on the emulated device

Prints one Markdown table and writes it, with the plot of cost growth, into DIR. Nothing else should run
meanwhile; what does, falls on both sides of every ratio.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import torch

from harness.environment import cpu_model
from tests.perf.growth import growth
from tests.perf.measuring import table
from tests.perf.rows import ROWS


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=[*ROWS, "operations"], help="some rows")
    parser.add_argument("--out", type=Path, default=Path("perf"), help="where the table and the plot go")
    parser.add_argument("--no-growth", action="store_true", help="leave the growth of costs out")
    chosen = parser.parse_args()
    begin = time.perf_counter()
    rows = []
    if "operations" in (chosen.only or ()):
        from tests.perf.operations import operations_table  # registers the emulated device

        print(operations_table())
        chosen.only.remove("operations")
        if not chosen.only:
            return
    for name in chosen.only or ROWS:
        print(f"{time.perf_counter() - begin:4.0f} s: {name} …", file=sys.stderr, flush=True)
        rows.append(ROWS[name]())
    day = datetime.now(UTC).date()
    machine = f"{cpu_model()}, {os.cpu_count()} cores, {platform.system()}"
    head = f"{day}, {machine}, torch {torch.__version__}, one thread a process; medians, ratios of turns side by side."
    text = f"{head}\n\n{table(rows)}\n"
    print(text)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "speed.md").write_text(text)
    if not chosen.no_growth:
        print(f"{time.perf_counter() - begin:4.0f} s: growth …", file=sys.stderr, flush=True)
        print(growth(chosen.out / "growth.svg"))
    print(f"{time.perf_counter() - begin:.0f} s in all; written to {chosen.out}/", file=sys.stderr)


if __name__ == "__main__":
    main()
