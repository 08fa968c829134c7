"""How many small changes of the code do the tests notice? Samples mutants and runs the tests that execute them.

    python -m tests.long.line_map build/lines -n 2 --dist worksteal     # once: which tests execute which lines
    python -m tests.long.mutants --map build/lines/map.json --out build/mutants.jsonl --number 300 --seed 1 --jobs 2

Each mutant is tried in a copy of the tree. The quick tests of its mirrored folder come first, then those that are newer
than the map, then the other tests that execute its line, until one fails or the budget is spent. A test that fails or
hangs counts when it does so once more, and passes without the mutant: a loaded machine catches nothing. Results
are appended to the file; a further call goes on where the last one ended. `--show` prints the survivors.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.long.line_map import ROOT, LineMap
from tests.long.mutation import Mutant, is_other, mutants

SCOPE = ("harness/work", "harness/training", "harness/study", "harness/components", "harness/stores", "reports")
LEFT_OUT = ("harness/work/diagnosis", "harness/work/checking", "harness/study/explanation.py")
"""What only talks to the user about the installation, components and keys."""
PRELOADED = (
    *("torch", "torchvision", "pandas", "scipy.stats", "sklearn.datasets", "matplotlib.pyplot", "pymongo", "gridfs"),
    *("pytest", "hypothesis", "sacred", "timm", "rich.progress", "jinja2", "tabulate"),
)
"""Imported once; the tests of each mutant run in a fork. Nothing of the tree is among them."""
QUICK = 2.0
"""Seconds of a test that is tried before those that the map does not know."""
CAUGHT, HANG, SURVIVED, BROKEN, UNSTEADY = "caught", "hang", "survived", "broken", "unsteady"
NOT_AGAIN = 9
"""Exit code of tests of which one failed once and passed when it was run again."""


def sample(root: Path, number: int, seed: int, scope: Sequence[str]) -> list[Mutant]:
    """So many mutants, each of another line, drawn evenly over the lines that have any.

    A line's lot depends on its text alone: a change elsewhere leaves most of the sample as it is.
    """
    lots: list[tuple[str, list[Mutant], bytes]] = []
    for folder in scope:
        for path in sorted(root.glob(folder) if folder.endswith(".py") else (root / folder).rglob("*.py")):
            file, source = str(path.relative_to(root)), path.read_bytes()
            if file.startswith(LEFT_OUT):
                continue
            by_line: dict[int, list[Mutant]] = defaultdict(list)
            for one in mutants(root, file):
                by_line[one.line].append(one)
            for own in by_line.values():
                lot = hashlib.sha256(f"{seed}/{file}/{own[0].text}".encode()).hexdigest()
                lots.append((lot, own, source))
    chosen: list[Mutant] = []
    for lot, own, source in sorted(lots, key=lambda one: one[0]):
        if len(chosen) == number:
            break
        one = random.Random(lot).choice(own)
        if is_other(one, source):
            chosen.append(one)
    return chosen


def mirrored(file: str) -> str:
    """The folder of the tests that mirror the file."""
    return str(Path("tests", *Path(file).parts[file.startswith("harness/") :]).parent)


def defined(root: Path) -> dict[str, float]:
    """Every test function of the tree by its node id without parameters."""
    found: dict[str, float] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        if "long" not in path.parts:
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    found[f"{path.relative_to(root)}::{node.name}"] = 0.0
    return found


class Selection:
    """Which tests to run for a mutant, by the map; tests that are newer than the map come by their folder."""

    def __init__(self, root: Path, lines: LineMap) -> None:
        self.root, self.lines = root, lines
        self.defined = set(defined(root))
        mapped = {_plain(test) for test in lines.seconds}
        self.newer = sorted(self.defined - mapped)

    def tests(self, mutant: Mutant, budget: float) -> list[str]:
        text = (self.root / mutant.file).read_text()
        moved = self.lines.moved(mutant.file, text)
        places = [moved[line] for line in _statement(text, mutant.line) if line in moved]
        found = self.lines.tests(mutant.file, min(places), max(places)) if places else set()
        folder = mirrored(mutant.file)
        near = {test for test in self.lines.seconds if test.startswith(folder)} - {*self.lines.failed}
        # Tests that the map does not know may have been written for this very line: most likely those of its module.
        module = mutant.file.removesuffix(".py").replace("/", ".")
        newer = [test for test in self.newer if test.startswith(folder)]
        own = [test for test in newer if self._names(test, module)]
        if not found or not _is_inside_function(text, mutant.line):
            # Executed at import, in processes that were killed, or never: the tests of the folder, and what names it.
            found |= near
            newer += [test for test in self.newer if test not in newer and self._names(test, Path(mutant.file).stem)]
        found = {test for test in found if _plain(test) in self.defined}
        then = [test for test in self.newer if test.startswith("tests/cli") and test not in newer]
        quick = sorted((test for test in found & near if self._seconds(test) <= QUICK), key=self._seconds)
        slow = sorted(found & near - {*quick}, key=self._seconds)
        chosen: list[str] = []
        spent = 0.0
        for test in dict.fromkeys([*quick, *own, *newer, *slow, *sorted(found - near, key=self._seconds), *then]):
            if test in own or spent + self._seconds(test) <= budget:
                chosen.append(test)
                spent += self._seconds(test)
        return chosen

    def _names(self, test: str, word: str) -> bool:
        return word in (self.root / test.partition("::")[0]).read_text()

    def _seconds(self, test: str) -> float:
        return self.lines.seconds.get(test, 1.0)


def _plain(test: str) -> str:
    return test.partition("[")[0]


def _statement(text: str, line: int) -> range:
    """The lines of the statement that the line belongs to; of one with a body only those before it."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            own = range(node.lineno, max(node.lineno, last) + 1)
            if line in own and (len(found) == 1 or len(own) < len(found)):
                found = own
    return found


def _is_inside_function(text: str, line: int) -> bool:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.Lambda) and node.lineno < line <= (node.end_lineno or 0):
            return True
    return False


class Sandbox:
    """A copy of the tree in which mutants are tried, one after the other."""

    def __init__(self, root: Path, place: Path) -> None:
        self.root, self.folder, self.scratch = root, place / "tree", place / "t"
        folder = self.folder
        folder.mkdir()
        names = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True).stdout
        for name in names.splitlines():
            if (root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, folder / name)
        (folder / ".venv").symlink_to((root / ".venv").resolve())
        self._clock = int(time.time())
        self._sound: dict[str, bool] = {}

    def judge(self, mutant: Mutant, tests: Sequence[str], limit: float) -> tuple[str, str]:
        """How the tests end with that mutant. What fails or hangs by itself is left out."""
        left = list(tests)
        while left:
            outcome, by = self.run(mutant, left, limit)
            plain = list(dict.fromkeys(map(_plain, left)))
            if outcome == BROKEN and left != plain:  # parameters are named otherwise than in the map
                left = plain
                continue
            if outcome == BROKEN or (outcome == HANG and not by):  # not even the tests' own modules can be imported
                return (CAUGHT, "import") if self.run(None, left[:1], limit)[0] == SURVIVED else (BROKEN, by)
            if outcome == SURVIVED or "::" not in by:
                return outcome, by
            one = _plain(by)
            if outcome == HANG and self.run(mutant, [one], limit)[0] == SURVIVED:
                outcome = UNSTEADY
            if outcome != UNSTEADY and one not in self._sound:
                self._sound[one] = self.run(None, [one], limit)[0] == SURVIVED
            if outcome != UNSTEADY and self._sound[one]:
                return outcome, by
            left = [test for test in left if _plain(test) != one]
        return SURVIVED, ""

    def run(self, mutant: Mutant | None, tests: Sequence[str], limit: float) -> tuple[str, str]:
        """How the tests end with that mutant in place, and the test that failed."""
        with self._changed(mutant):
            self.scratch.mkdir(exist_ok=True)
            log = self.folder / "log"
            child = os.fork()
            if not child:
                self._child(log, tests)
            ended = _wait(child, limit)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)  # what the tests have left running
            shutil.rmtree(self.scratch, ignore_errors=True)
        if ended is None:
            os.waitpid(child, 0)
            begun = re.findall(r"^(\S+\.py::\w+)", log.read_text(errors="replace"), re.MULTILINE)
            return HANG, begun[-1] if begun else ""
        said = log.read_text(errors="replace")
        if ended in (4, 5):
            return BROKEN, said[-300:]
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
        if ended == 0:
            return SURVIVED, ""
        return UNSTEADY if ended == NOT_AGAIN else CAUGHT, failed[0] if failed else said[-200:]

    def _child(self, log: Path, tests: Sequence[str]) -> None:
        """Run the tests in this forked process, and end it."""
        code = 3
        try:
            os.setsid()
            target = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
            os.dup2(target, 1)
            os.dup2(target, 2)
            os.chdir(self.folder)
            os.environ |= {"PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1", "TMPDIR": str(self.scratch)}
            tempfile.tempdir = str(self.scratch)
            sys.path[:] = [str(self.folder), *(path for path in sys.path if path not in ("", str(self.root)))]
            for name in [name for name in sys.modules if name.partition(".")[0] in ("tests", "harness", "reports")]:
                del sys.modules[name]
            import hypothesis
            import pytest

            found_only = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
            hypothesis.settings.register_profile("mutants", phases=found_only, database=None, deadline=None)
            hypothesis.settings.load_profile("mutants")
            options = ["-v", "-x", "--tb=line", "-p", "no:cacheprovider", "--durations=0"]
            failed = _Failed([])
            code = int(pytest.main([*options, *tests], plugins=[failed]))
            if code == 1 and failed.tests and pytest.main([*options, failed.tests[0]]) == 0:
                code = NOT_AGAIN
        finally:
            sys.stdout.flush()
            os._exit(code)

    @contextlib.contextmanager
    def _changed(self, mutant: Mutant | None) -> Iterator[None]:
        if mutant is None:
            yield
            return
        path = self.folder / mutant.file
        source = path.read_bytes()
        self._clock += 2  # compiled files are known by their source's time in whole seconds
        path.write_bytes(mutant.of(source))
        os.utime(path, (self._clock, self._clock))
        try:
            yield
        finally:
            self._clock += 2
            path.write_bytes(source)
            os.utime(path, (self._clock, self._clock))


@dataclass
class _Failed:
    """A plugin of pytest that gathers what failed."""

    tests: list[str]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.tests.append(report.nodeid)


def _wait(child: int, limit: float) -> int | None:
    """The child's exit code; None if it does not end in that time, which passes slower on a loaded machine."""
    left, last = limit, time.monotonic()
    while left > 0:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
        last, passed = time.monotonic(), time.monotonic() - last
        left -= passed / max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return None


def work(mine: Iterable[Mutant], asked: argparse.Namespace) -> None:
    """Try these mutants in a sandbox of this process's own, and append what comes out."""
    for name in PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    selection = Selection(ROOT, LineMap.read(asked.map))
    with tempfile.TemporaryDirectory(prefix="m-") as folder:
        sandbox = Sandbox(ROOT, Path(folder))
        for one in mine:
            tests = selection.tests(one, asked.budget)
            began = time.monotonic()
            limit = 60 + 4 * asked.budget
            outcome, by = sandbox.judge(one, tests, limit) if tests else (SURVIVED, "no test executes the line")
            row: dict[str, Any] = {"name": one.name, "place": f"{one.file}:{one.line}"}
            row |= {"outcome": outcome, "by": by, "tests": len(tests), "seconds": round(time.monotonic() - began, 1)}
            with asked.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


def results(out: Path) -> dict[str, dict[str, Any]]:
    """The last result of each mutant."""
    lines = out.read_text().splitlines() if out.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def show(rows: Iterable[dict[str, Any]]) -> None:
    rows = list(rows)
    counts = Counter(row["outcome"] for row in rows)
    for row in rows:
        if row["outcome"] not in (CAUGHT, HANG):
            print(f"{row['outcome']} ({row['tests']} tests, {row['seconds']} s): {row['place']}: {row['name']}")
    caught = counts[CAUGHT] + counts[HANG]
    print(f"{len(rows)} mutants: {dict(counts)}; {caught / max(1, len(rows)):.1%} caught")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--map", type=Path, required=True, help="made by tests.long.line_map")
    parser.add_argument("--out", type=Path, required=True, help="results, one JSON document per line")
    parser.add_argument("--number", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--budget", type=float, default=60, help="seconds of tests per mutant, by the map")
    parser.add_argument("--scope", nargs="+", default=SCOPE, help="folders or files")
    parser.add_argument("--again", action="store_true", help="try survivors again, after tests were added")
    parser.add_argument("--show", action="store_true", help="only print what is known")
    asked = parser.parse_args()
    chosen = sample(ROOT, asked.number, asked.seed, asked.scope)
    known = results(asked.out)
    if not asked.show:
        left = [
            one for one in chosen if one.name not in known or (asked.again and known[one.name]["outcome"] == SURVIVED)
        ]
        print(f"{len(chosen)} mutants, {len(left)} to try", flush=True)
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        children = []
        for job in range(asked.jobs):
            if not (child := os.fork()):
                work(left[job :: asked.jobs], asked)
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
    found = results(asked.out)
    show(found[one.name] for one in chosen if one.name in found)


if __name__ == "__main__":
    main()
