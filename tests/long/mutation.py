"""How many small changes of the code do the tests notice? Samples mutants of cosmic-ray and runs tests on each.

    python -m tests.long.mutation harness/study --tests tests/study --number 200 --seed 1

The code is changed in a copy of the last commit, below build/mutation. Each mutant is on another line. The same command
continues where the last one ended. At the end it shows what survived.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import WorkerOutcome, WorkResult

FOLDER = Path("build/mutation").absolute()
TIMEOUT = 600.0
"""Seconds after which the tests of a mutant count as failed: a changed loop may never end."""


def prepare(modules: Sequence[str], tests: Sequence[str], number: int, seed: int) -> tuple[Path, Path]:
    """Make the copy of the code and the list of mutants; returns cosmic-ray's configuration and session."""
    name = "-".join([*modules, str(number), str(seed)]).replace("/", ".")
    tree, config, session = FOLDER / name, FOLDER / f"{name}.toml", FOLDER / f"{name}.sqlite"
    if session.exists():
        subprocess.run(["git", "checkout", "-q", "."], cwd=tree, check=True)  # a mutant that was stopped
        return config, session
    shutil.rmtree(tree, ignore_errors=True)
    subprocess.run(["git", "clone", "-q", ".", str(tree)], check=True)
    python = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    settings = {"module-path": list(modules), "timeout": TIMEOUT, "test-command": " ".join(python)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    config.write_text("\n".join(["[cosmic-ray]", *lines, "[cosmic-ray.distributor]", 'name = "local"', ""]))
    unfinished = session.with_suffix(".part")
    unfinished.unlink(missing_ok=True)
    cosmic_ray("init", config, unfinished, folder=tree)
    skip_others(unfinished, number, seed)
    unfinished.rename(session)
    return config, session


def skip_others(session: Path, number: int, seed: int) -> None:
    """Keep so many mutants, each of another line."""
    rng = random.Random(seed)
    with use_db(session, WorkDB.Mode.open) as work:
        items = sorted(work.work_items, key=lambda item: repr(item.mutations))
        rng.shuffle(items)
        lines = {(item.mutations[0].module_path, item.mutations[0].start_pos[0]): item.job_id for item in items}
        kept = set(rng.sample(list(lines.values()), min(number, len(lines))))
        others = [item.job_id for item in items if item.job_id not in kept]
        work.set_multiple_results(others, WorkResult(WorkerOutcome.SKIPPED))


def cosmic_ray(*arguments: object, folder: Path) -> None:
    """Run cosmic-ray on the code in that folder."""
    program = Path(sys.executable).with_name("cosmic-ray")
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    subprocess.run([str(program), *map(str, arguments)], cwd=folder, env=environment, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", help="files or folders that are changed")
    parser.add_argument("--tests", nargs="+", default=["tests"], help="tests that should notice")
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    config, session = prepare(asked.modules, asked.tests, asked.number, asked.seed)
    cosmic_ray("exec", config, session, folder=session.with_suffix(""))
    with use_db(session, WorkDB.Mode.open) as work:
        judged = [result for _, result in work.completed_work_items if result.test_outcome is not None]
    survived = [result for result in judged if not result.is_killed]
    for result in survived:
        print(result.diff)
    print(f"{len(judged) - len(survived)} of {len(judged)} mutants were noticed")


if __name__ == "__main__":
    main()
