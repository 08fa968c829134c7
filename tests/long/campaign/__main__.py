"""The attack campaign: `python -m tests.long.campaign [PART ...] [--seed N]`, or `make campaign`.

Every part attacks a store that was really run, tries so often, and judges each try: values against those of the
undamaged store, bytes against a reference, damage named, no traceback, no hang. Prints one table, and ends with 1 on
any failure. A seed repeats the same attacks; moments of kills depend on the machine as well.
"""

from __future__ import annotations

import argparse
import importlib
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.long.campaign.scene import Scene, scene
from tests.long.campaign.tally import Attempt, Hang, Tally, failures, table

PARTS = ("files", "documents", "archives", "pickles", "queries", "names", "servers", "clocks", "disks", "kills")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if unknown := set(asked.parts) - {*PARTS}:
        parser.error(f"no part is called {', '.join(sorted(unknown))}; the parts are {', '.join(PARTS)}")
    tallies: list[Tally] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="campaign-") as folder, scene(Path(folder)) as target:
        _tell(f"the store to attack is made, {time.monotonic() - began:.0f} s")
        for part in asked.parts or PARTS:
            started = time.monotonic()
            made = _attack(part, target, random.Random(f"{asked.seed}/{part}"))
            tallies += made
            tries, held = sum(len(one.attempts) for one in made), sum(one.held for one in made)
            _tell(f"{part}: {held} of {tries} held, {time.monotonic() - started:.0f} s")
            if told := failures(made):
                _tell(told)
    failed = any(one.counts for one in tallies)
    print(f"\nSeed {asked.seed}, {time.monotonic() - began:.0f} s:\n\n{table(tallies)}")
    return 1 if failed else 0


def _attack(part: str, target: Scene, rng: random.Random) -> list[Tally]:
    """A part that breaks off has failed; the others go on."""
    try:
        made: list[Tally] = importlib.import_module(f"tests.long.campaign.{part}").run(target, rng)
        return made
    except (Exception, Hang):
        return [Tally(part, [Attempt("broken off", [("other", traceback.format_exc()[-2000:])])])]


def _tell(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
