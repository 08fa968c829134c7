"""docs/methods.md: every method of ours has its rows, with its file, and the page's code runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.components.preset import get_preset
from harness.components.registries import METHODS
from harness.data.imagenet import HELD_OUT
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.work.references import missing_references
from tests.jobs import make_references
from tests.stored_runs import store_run
from tests.toy import user_folder

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "methods.md").read_text()
NAMES = [name for name, entry in METHODS.items() if entry.file.is_relative_to(ROOT)]


def rows(heading: str, begin: str = "| `") -> dict[str, list[str]]:
    """The rows of the table under that heading, by their first cell: that of a method is its name."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith(begin)
    ]
    return {cells[0].strip("`"): cells[1:] for cells in found}


def test_every_method_has_its_rows() -> None:
    assert list(rows("Overview")) == list(rows("Tested combinations"))
    assert sorted(rows("Overview")) == sorted(NAMES)


def test_the_page_names_the_file_of_every_method() -> None:
    for name, (_, file, *_) in rows("Overview").items():
        assert ROOT / file.strip("`") == METHODS.entries[name].file


def test_differences_of_tables_and_spaces_are_those_of_the_presets() -> None:
    found = rows("Differences of tables and spaces from the publications", "| ")
    (networks,) = [cells for place, cells in found.items() if "(Table B): batch normalisation" in place]
    (study,) = find_studies("darts_space")
    configs = [one.trial.config for one in expand(study, get_preset("paper", study.about), 1)]
    assert "running statistics, not affine" in networks[0] and "statistics of the current batch" in networks[1]
    assert {config.network.batch_norm for config in configs} == {"batch-statistics"}
    (images,) = [cells for place, cells in found.items() if "(Table C): images" in place]
    (study,) = find_studies("autoformer_space")
    configs = [one.trial.config for one in expand(study, get_preset("paper", study.about), 1)]
    assert {(config.dataset, config.train.with_valid) for config in configs} == {("imagenet", False)}
    assert images[1] == f"trained on all but {HELD_OUT} per class, searched on these {HELD_OUT}"


def test_the_pages_code_compares_with_the_untrained_supernet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    codes = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    [code] = [one for one in codes if '"untrained"' in one]
    [study] = find_studies("compared_methods")
    preset = get_preset("tiny")
    with user_folder(tmp_path):
        for request in expand(study, preset, 2):
            store_run(Path("runs"), request, 0.5, more={"valid_loss": 1.5 + request.seed / 100})
        missing = missing_references([study], preset, DirectoryStore(Path("runs")), seeds=2)
        assert {answer["status"] for answer in make_references(missing, Path("runs"))} == {"done"}
        exec(code.replace('"demo"', '"tiny"').replace("seeds=5", "seeds=2"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2 * len(study.rows)
    assert all("valid_loss    1.505" in line and "2 of 2 below" in line for line in printed[: len(study.rows)])
