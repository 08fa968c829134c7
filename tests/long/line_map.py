"""Which tests execute which lines: made once with coverage, read by `mutants`.

As a plugin of pytest this module names the running test, in this process and in those that the test starts.
`python -m tests.long.line_map FOLDER [PYTEST OPTIONS]` runs the suite, or a part of it, that way and writes
FOLDER/map.json; a further call adds what its part executes.
"""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import coverage
import pytest

ROOT = Path(__file__).parents[2]
RUNNING, DURATIONS = "LINE_MAP_TEST", "LINE_MAP_DURATIONS"
SETTINGS = f"""
[run]
source = {{root}}/harness
    {{root}}/reports
data_file = {{folder}}/data
parallel = true
patch = _exit, fork
context = ${{{{{RUNNING}-}}}}
disable_warnings = no-data-collected, module-not-imported, module-not-measured, couldnt-parse
"""


@dataclass(frozen=True)
class LineMap:
    """The tests by file and line, how long each took, and the text that the lines belong to.

    A line's tests are node ids. A fixture that several tests share counts for its whole file, named alone.
    """

    lines: dict[str, dict[str, list[str]]]
    seconds: dict[str, float]
    failed: list[str]
    texts: dict[str, str]

    @classmethod
    def read(cls, path: Path) -> LineMap:
        return cls(**json.loads(path.read_text()))

    def tests(self, file: str, first: int, last: int) -> set[str]:
        """The tests that execute any of the lines while they run, or in a fixture of theirs."""
        lines = self.lines.get(file, {})
        names = {test for line in range(first, last + 1) for test in lines.get(str(line), ())}
        files = {name for name in names if "::" not in name}
        return {test for test in self.seconds if test in names or test.partition("::")[0] in files} - {*self.failed}

    def moved(self, file: str, text: str) -> dict[int, int]:
        """The line of the map's text by the line of this newer text, for lines that both have."""
        old, new = self.texts.get(file, "").splitlines(), text.splitlines()
        blocks = difflib.SequenceMatcher(None, new, old, autojunk=False).get_matching_blocks()
        return {at.a + step + 1: at.b + step + 1 for at in blocks for step in range(at.size)}


def _name(test: str) -> None:
    os.environ[RUNNING] = test
    if running := coverage.Coverage.current():
        running.switch_context(test)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _name(item.nodeid)
    try:
        return (yield)
    finally:
        _name("")


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[None]:
    """What a shared fixture executes belongs to every test of the file."""
    test = os.environ.get(RUNNING, "")
    if fixturedef.scope != "function":
        _name(test.partition("::")[0])
    try:
        return (yield)
    finally:
        _name(test)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Appends the time of each phase; the process that started all others does it, and no other."""
    path = os.environ.get(DURATIONS)
    if path and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(path).open("a") as file:
            file.write(json.dumps([report.nodeid, report.duration, report.outcome]) + "\n")


def make(folder: Path, *options: str) -> None:
    """Run the suite of this tree, or the part that the options choose, under coverage."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "settings"
    settings.write_text(SETTINGS.format(root=ROOT, folder=folder))
    environment = os.environ | {
        "COVERAGE_PROCESS_START": str(settings),
        DURATIONS: str(folder / "durations"),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.long.line_map", *options]
    subprocess.run(command, cwd=ROOT, env=environment)


def gather(folder: Path) -> LineMap:
    """What the processes of the suite have left in the folder."""
    gathered = coverage.Coverage(data_file=folder / "gathered", config_file=False)
    gathered.combine([str(path) for path in folder.glob("data.*")], keep=True)
    data = gathered.get_data()
    lines: dict[str, dict[str, list[str]]] = {}
    texts: dict[str, str] = {}
    for path in (Path(file) for file in sorted(data.measured_files()) if file.endswith(".py")):
        name = str(path.relative_to(ROOT))
        texts[name] = path.read_text()
        tests = {str(line): sorted({*own} - {""}) for line, own in data.contexts_by_lineno(str(path)).items()}
        lines[name] = {line: own for line, own in tests.items() if own}
    seconds: dict[str, float] = {}
    failed = set()
    for line in (folder / "durations").read_text().splitlines():
        test, took, outcome = json.loads(line)
        seconds[test] = seconds.get(test, 0.0) + took
        if outcome != "passed":
            failed.add(test)
    return LineMap(lines, seconds, sorted(failed), texts)


if __name__ == "__main__":
    out = Path(sys.argv[1]).resolve()
    make(out, *sys.argv[2:])
    (out / "map.json").write_text(json.dumps(asdict(gather(out))))
