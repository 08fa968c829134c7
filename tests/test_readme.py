"""The README's own examples, run as a newcomer would: in an empty folder, through the command line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.cli import main
from harness.components import discovery

README = Path(__file__).parents[1] / "README.md"


def example(heading: str, number: int) -> str:
    """A Python block of a section of the README."""
    section = README.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return str(re.findall(r"```python\n(.*?)```", section, re.DOTALL)[number])


def test_the_methods_example_is_ten_lines_at_most() -> None:
    assert sum(bool(line.strip()) for line in example("A method of your own", 0).splitlines()) <= 10


def test_a_method_of_ten_lines_is_listed_runs_and_stands_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, number in (("methods/two_paths.py", 0), ("studies/mine.py", 1)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(example("A method of your own", number))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARNESS_STORE", raising=False)
    with discovery.fresh():
        assert main(["list", "methods"]) == 0
        assert "two-paths" in (listed := capfd.readouterr().out) and "Two uniform paths a step" in listed
        assert main(["run", "mine", "--preset", "tiny", "--seeds", "1", "--jobs", "1"]) == 0
        capfd.readouterr()
        assert main(["report", "mine", "--preset", "tiny", "--seeds", "1"]) == 0
        table = capfd.readouterr().out
    assert re.search(r"\| two-paths +\| +-?\d\.\d{3}", table), table
