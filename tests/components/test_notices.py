"""Files and folders that bring nothing, as a user of the command line sees them: named once, and in nobody's way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.cli import main
from harness.components.preset import get_preset
from harness.errors import ComponentWarning
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests.stored_runs import store_run
from tests.toy import SINGLE_PATH, user_folder

STUDY = """from harness.study import Column, Row, Study

study = Study("{name}", "One row", [Row({{"Method": "m"}}, {{"method": "{method}"}})], [Column("τ", "kendall_tau")])
"""
METHOD = SINGLE_PATH.format(name="mine", type="Mine")

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    """Writes a file of the current folder, which holds a method and a study that are in order."""

    def write_file(path: str, text: str) -> Path:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        return tmp_path / path

    good = STUDY.format(name="good", method="mine")
    with user_folder(tmp_path, {"studies/good.py": good, "methods/mine.py": METHOD}):
        (tmp_path / "runs").mkdir()
        yield write_file


def told(capsys: pytest.CaptureFixture[str], *command: str, status: int = 0) -> list[str]:
    """The lines that a command prints on stderr, but that there is no store yet."""
    assert main([*command]) == status
    return [line for line in capsys.readouterr().err.splitlines() if not line.startswith("there is no store")]


def test_a_file_that_registers_nothing_is_one_line(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("methods", "spaces", "datasets", "benchmarks", "presets", "studies/presets"):
        write(f"{folder}/empty.py", "X = 1\n")
        write(f"{folder}/_private.py", "X = 1\n")
    lines = told(capsys, "plan", "good", "--preset", "tiny")
    assert len(lines) == 6
    for folder in ("methods", "spaces", "datasets", "benchmarks", "presets", "studies/presets"):
        assert any(f"/{folder}/empty.py registers nothing: put a decorator such as @METHODS" in one for one in lines)
    assert told(capsys, "list") == []  # told once per process


def test_a_class_without_its_decorator_is_told_with_its_line(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    expected = {}
    for module, base, registry in (
        ("method", "Method", "METHODS"),
        ("schedule", "Schedule", "SCHEDULES"),
        ("space", "Space", "SPACES"),
        ("search", "Search", "SEARCHES"),
        ("augmentation", "Augmentation", "AUGMENTATIONS"),
        ("optimiser", "Optimiser", "OPTIMISERS"),
    ):
        text = f"from harness.components.{module} import {base}\n\n\nclass Naked({base}):\n    pass\n"
        file = write(f"methods/naked_{module}.py", text)
        start = f"warning: {file}:4 registers nothing: the class Naked is a {base} without its decorator"
        expected[start] = f'@{registry}.register("NAME")'
    lines = told(capsys, "plan", "good", "--preset", "tiny")
    assert len(lines) == len(expected)
    for start, decorator in expected.items():
        assert any(line.startswith(start) and decorator in line for line in lines)


def test_a_file_whose_neighbour_registers_for_it_is_in_order(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    maker = "from harness.components.registries import METRICS\n\ndef make(name):\n    METRICS.register(name)(max)\n"
    write("methods/_maker.py", maker)
    write("methods/made.py", "from ._maker import make\n\nmake('made')\n")
    assert told(capsys, "list", "metrics") == []


def test_a_missing_method_is_answered_with_the_file_that_should_bring_it(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = write("methods/x.py", "import no_such_library\n")
    naked = write("methods/other.py", METHOD.replace('@METHODS.register("mine")\n', "NAME = 'my-own'\n"))
    write("studies/uses_x.py", STUDY.format(name="uses_x", method="x"))
    write("studies/uses_own.py", STUDY.format(name="uses_own", method="my-own"))
    warnings = told(capsys, "plan", "good", "--preset", "tiny")
    assert [line.partition(" ")[2].partition(":")[0] for line in warnings] == [str(naked), str(broken)]
    why = f"{broken}:1 does not import: ModuleNotFoundError: No module named 'no_such_library'"
    lines = told(capsys, "plan", "uses_x", "--preset", "tiny", status=2)
    assert "no method is named 'x'" in lines[0] and lines[1].startswith(why)
    lines = told(capsys, "plan", "uses_own", "--preset", "tiny", status=2)
    assert "no method is named 'my-own'" in lines[0] and lines[1].startswith(f"{naked}:7 registers nothing")
    assert len(told(capsys, "plan", "good", "--preset", "tiny", "with", "method.name=z", status=2)) == 1


def test_commands_about_all_studies_leave_out_those_whose_method_is_broken(
    write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = write("methods/x.py", "import no_such_library\n")
    write("studies/uses_x.py", STUDY.format(name="uses_x", method="x"))
    with pytest.warns(ComponentWarning):
        store_run(tmp_path / "runs", expand(find_studies("good")[0], get_preset("tiny"), 1)[0], 0.5)
    for command in (["report"], ["status"], ["plan", "--all"]):
        (line,) = [line for line in told(capsys, *command, "--preset", "tiny") if line.startswith("warning: study")]
        assert line.startswith("warning: study uses_x is left out: no method is named 'x'")
        assert f"{broken}:1 does not import: ModuleNotFoundError" in line
    for command in (["report"], ["status"], ["plan"]):
        line, why = told(capsys, *command, "uses_x", "--preset", "tiny", status=2)
        assert "no method is named 'x'" in line and str(broken) in why


def test_a_broken_study_stops_no_other(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write("studies/bad.py", "'''Bad.'''\nstudy = Studi()\n")
    store_run(tmp_path / "runs", expand(find_studies("good")[0], get_preset("tiny"), 1)[0], 0.5)
    why = f"{file}:2 does not import: NameError: name 'Studi' is not defined"
    assert told(capsys, "report", "--preset", "tiny") == [f"warning: {why}. The file is left out"]
    assert told(capsys, "list") == []
    assert told(capsys, "plan", "good", "--preset", "tiny") == []
    assert told(capsys, "report", "good", "--preset", "tiny") == []
    assert told(capsys, "plan", "bad", "--preset", "tiny", status=2) == [f"error: {why}"]
    assert told(capsys, "plan", "studies/bad.py", "--preset", "tiny", status=2) == [f"error: {why}"]


def test_list_tells_of_a_broken_study(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    file = write("studies/bad.py", "1 / 0\n")
    why = f"{file}:1 does not import: ZeroDivisionError: division by zero"
    assert told(capsys, "list", "studies") == [f"warning: {why}. The file is left out"]


def test_a_folder_that_looks_like_one_is_mentioned_once(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    meant = {
        "method": "methods",
        "Methods": "methods",
        "dataset": "datasets",
        "data_sets": "datasets",
        "Study": "studies",
        "preset": "presets",
        "benchmark": "benchmarks",
    }
    by_text = {"metods": "methods", "schedules": "methods", "cluster_rules": "methods", "importers": "benchmarks"}
    for folder in meant:
        write(f"{folder}/mine.py", "")
    for folder in by_text:
        write(f"{folder}/mine.py", "from harness.components import registries\n")
    lines = told(capsys, "list", "studies")
    assert len(lines) == len(meant | by_text)
    for folder, name in (meant | by_text).items():
        start = f"warning: ./{folder} is not read: should it be ./{name}? The folders that are read are ./methods, "
        assert any(line.startswith(start) for line in lines)
    assert told(capsys, "plan", "good", "--preset", "tiny") == []


def test_a_folder_of_something_else_is_not_mentioned(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    for path in ("method/notes.txt", "schedules/mine.py", "metods/mine.py", "data/x.py", "tests/x.py", "reports/x.py"):
        write(path, "import os\n")
    assert told(capsys, "list") == []
