"""Questions to many stored runs, in turns with another clone of the project: is reading as fast as it was there?

    python -m tests.perf.turned CLONE [--runs 10000] [--turns 7] [--folder DIR]

Each side reads a copy of the runs that it has indexed, or mirrored into MongoDB, by itself. Ratios are of processor
time, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.perf.stores import QUESTIONS, ask, server
from tests.perf.synthetic import fill

HERE = Path(__file__).parents[2]


def sides(clone: Path, number: int, folder: Path, address: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """By kind of store, the places of the other clone and of ours; filled where they are empty."""
    runs = folder / f"runs-{number}"
    if not runs.exists():
        runs.mkdir(parents=True)
        fill(runs, number)
    copies = []
    for name, code in (("theirs", clone), ("ours", HERE)):
        copy = folder / f"{name}-{number}"
        if not copy.exists():
            shutil.copytree(runs, copy, copy_function=os.link, ignore=shutil.ignore_patterns("index"))
        copies.append(str(copy))
        sync = ["-m", "harness", "store", "sync", "--store", str(copy), "--mongo", f"{address}{name}"]
        ask(sync, str(copy), code)
    yield "directory", (copies[0], copies[1])
    yield "MongoDB", (f"{address}theirs", f"{address}ours")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("clone", type=Path)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where the runs are made; kept, and used again")
    parser.add_argument("--mongo", help="a server that has the runs already, as mongodb://HOST:PORT/")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (chosen.folder or Path(temporary)).absolute()
        with server(Path(temporary) / "mongo") as own:
            address = chosen.mongo or own.removesuffix("nas")
            print("| store | question | theirs | ours | ratio |\n|:--|:--|--:|--:|--:|")
            for kind, places in sides(chosen.clone.absolute(), chosen.runs, folder, address):
                for name, arguments in QUESTIONS.items():
                    times = [
                        [ask(arguments, place, code).processor for place, code in zip(places, codes, strict=True)]
                        for codes in [(chosen.clone.absolute(), HERE)] * (chosen.turns + 1)
                    ][1:]  # the first makes the index
                    before, after = (min(side) for side in zip(*times, strict=True))
                    ratio = statistics.median(ours / theirs for theirs, ours in times)
                    print(f"| {kind} | {name} | {before:.2f} s | {after:.2f} s | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
