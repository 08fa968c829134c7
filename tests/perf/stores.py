"""How long questions to many stored runs take, from both kinds of stores, and how that grows.

    python -m tests.perf.stores [--runs 1000 10000] [--repeat 5] [--folder DIR] [--only directory]

Makes the runs (`tests.perf.synthetic`), mirrors them into a MongoDB server of its own, and runs each command
as a user would, imports included. Answers of the two stores are compared: only equal ones count. Prints one
Markdown table with the best of several times, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from harness.environment import cpu_model
from harness.stores.directory.store import DirectoryStore
from tests.mongod import Mongod
from tests.perf.synthetic import PRESET, STUDY, fill

_RUNS = "from harness import results; frame = results.runs({}); print(frame.shape, frame.kendall_tau.sum())"
QUESTIONS = {
    "`status`": ["-m", "harness", "status"],
    "`results.runs()`": ["-c", _RUNS.format("")],
    f'`results.runs("{STUDY}")`': ["-c", _RUNS.format(f'"{STUDY}"')],
    f"`report {STUDY} --format markdown`": ["-m", "harness", "report", STUDY, "--preset", PRESET],
    f"`query … --study {STUDY}`": ["-m", "harness", "query", "not overridden and seed < 3", "--study", STUDY],
}
FIRST, BARE = "`results.runs()`, index not there yet", "`--version`"
MIRROR, AGAIN = "`store sync`, database empty", "`store sync`, all runs there"


@dataclass(frozen=True)
class Answer:
    """What a command printed, and how long it took: by the clock, and in processor time of its own."""

    text: str
    wall: float
    processor: float


def ask(arguments: list[str], place: str, clone: Path | None = None) -> Answer:
    """Run Python with these arguments on the store of that name, with the code of another clone if one is given."""
    environment = {**os.environ, "HARNESS_STORE": place, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    for name in ("HARNESS_MONGO", "PYTHONDONTWRITEBYTECODE"):  # with the second all modules were compiled every time
        environment.pop(name, None)
    if place.startswith("mongodb://"):
        environment |= {"HARNESS_MONGO": place, "HARNESS_STORE": "/nonexistent"}
    if clone is not None:
        environment["PYTHONPATH"] = str(clone)
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, *arguments], env=environment, stdout=output, cwd=clone)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - begin
        output.seek(0)
        text = output.read().decode()
    if process.returncode:
        raise SystemExit(f"{arguments} ended with {process.returncode}:\n{text}")
    return Answer(text, wall, usage.ru_utime + usage.ru_stime)


def measure(place: str, repeat: int) -> dict[str, list[Answer]]:
    return {name: [ask(arguments, place) for _ in range(repeat)] for name, arguments in QUESTIONS.items()}


def compare(number: int, answers: dict[str, dict[str, list[Answer]]]) -> None:
    """Everybody must say the same, and speak of all runs."""
    for name in QUESTIONS:
        texts = {answer.text for own in answers.values() for answer in own[name]}
        if len(texts) != 1:
            raise SystemExit(f"{name} has {len(texts)} answers:\n" + "\n".join(sorted(texts)))
    shape = answers["directory"]["`results.runs()`"][0].text
    if not shape.startswith(f"({number}, "):
        raise SystemExit(f"{number} runs were made, but the answer is {shape}")


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    """The address of a database of its own."""
    started = Mongod(folder)
    started.start()
    try:
        yield f"mongodb://127.0.0.1:{started.port}/nas"
    finally:
        started.kill()


def look_at(number: int, folder: Path, repeat: int, only: str | None) -> dict[tuple[str, str], list[Answer]]:
    """All answers with so many runs, by store and question."""
    store = folder / f"runs-{number}"
    if not store.exists():
        print(f"making {number} runs …", file=sys.stderr)
        store.mkdir(parents=True)
        fill(store, number)
    if len(DirectoryStore(store).ids()) != number:
        raise SystemExit(f"{store} holds {len(DirectoryStore(store).ids())} runs, not {number}: remove it")
    for shard in (store / "index").glob("*"):
        shard.unlink()
    print(f"asking {number} runs …", file=sys.stderr)
    once = {("directory", FIRST): [ask(QUESTIONS["`results.runs()`"], str(store))]}
    answers = {"directory": measure(str(store), repeat)}
    if only != "directory":
        with tempfile.TemporaryDirectory(dir=folder) as data, server(Path(data)) as address:
            sync = ["-m", "harness", "store", "sync", "--store", str(store), "--mongo", address]
            once["MongoDB", MIRROR] = [ask(sync, str(store))]
            once["MongoDB", AGAIN] = [ask(sync, str(store))]
            answers["MongoDB"] = measure(address, repeat)
    compare(number, answers)
    once["", BARE] = [ask(["-m", "harness", "--version"], str(store)) for _ in range(repeat)]
    return once | {(kind, name): own[name] for kind, own in answers.items() for name in own}


def table(found: dict[int, dict[tuple[str, str], list[Answer]]]) -> str:
    """Least seconds by the clock, in brackets of processor time; growth from the least to the most runs."""
    numbers = sorted(found)
    heads = ["store", "question", *(f"{number:,} runs" for number in numbers), "growth"]
    lines = ["| " + " | ".join(heads) + " |", "|:--|:--|" + "--:|" * (len(numbers) + 1)]
    for kind, name in sorted(found[numbers[0]], key=lambda place: place[0]):
        walls, shown = [], []
        for number in numbers:
            own = found[number][kind, name]
            walls.append(min(answer.wall for answer in own))
            shown.append(f"{walls[-1]:.2f} s ({min(answer.processor for answer in own):.2f})")
        lines.append("| " + " | ".join([kind, name, *shown, f"× {walls[-1] / walls[0]:.1f}"]) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[1000, 10000], metavar="N")
    parser.add_argument("--repeat", type=int, default=5, help="how often each question is asked")
    parser.add_argument("--folder", type=Path, help="where the runs are made; kept, and used again")
    parser.add_argument("--only", choices=["directory"], help="leave MongoDB out")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        found = {number: look_at(number, folder.absolute(), chosen.repeat, chosen.only) for number in chosen.runs}
    day = datetime.now(UTC).date()
    print(f"{day}, {cpu_model()}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()};")
    print(f"best of {chosen.repeat} by the clock, in brackets of processor time without the server's.\n")
    print(table(found))


if __name__ == "__main__":
    main()
