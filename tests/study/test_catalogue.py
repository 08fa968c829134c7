"""Studies by name or by file, ours and the user's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main
from harness.components import discovery
from harness.errors import BrokenComponent, ComponentWarning, NameCollision, UnknownName, UserError
from harness.study.catalogue import all_studies, find_studies

MINE = """
from harness.study import Column, Row, Study

def one(name):
    return Study(name, "Mine", [Row({"Method": "SPOS"})], [Column("τ", "kendall_tau")])

"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's `studies` folder as part of the current directory."""
    with discovery.fresh():
        monkeypatch.chdir(tmp_path)
        (tmp_path / "studies").mkdir()
        yield tmp_path / "studies"


def names(word: str) -> list[str]:
    return [study.name for study in find_studies(word)]


def test_a_study_is_found_by_name_and_by_file(project: Path) -> None:
    (project / "mine.py").write_text(MINE + "study = one('my_table')")
    (project / "many.py").write_text(MINE + "studies = [one('first'), one('second')]")
    assert names("mine") == names("my_table") == names("studies/mine.py") == names(str(project / "mine.py"))
    assert names("many") == ["first", "second"]
    assert names("second") == ["second"]
    found = [study.name for study in all_studies()]
    assert found[0] == "ablation_calr_ms" and found[-3:] == ["first", "second", "my_table"]


def test_a_broken_neighbour_does_no_harm_to_a_study_named_by_its_file(project: Path) -> None:
    (project / "mine.py").write_text(MINE + "study = one('my_table')")
    (project / "broken.py").write_text("1 / 0")
    assert names("mine") == ["my_table"]
    with pytest.warns(ComponentWarning, match=r"broken\.py:1 does not import: ZeroDivisionError"):
        assert [study.name for study in all_studies()][-1] == "my_table"
    with pytest.raises(BrokenComponent, match=r"broken\.py:1 does not import: ZeroDivisionError"):
        find_studies("broken")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("study = one('lost_table')\n1 / 0", "does not import: ZeroDivisionError"),
        ("studi = one('lost_table')", "holds no study"),
        ("study = Study('lost_table', '', [Row({'M': ''})], [Column('τ', 'kendal_tau')])", "did you mean"),
    ],
)
def test_the_name_of_a_study_that_was_left_out_is_answered_with_the_reason(
    project: Path, text: str, reason: str
) -> None:
    (project / "mine.py").write_text(MINE + text)
    with pytest.warns(ComponentWarning, match=reason), pytest.raises(UnknownName) as caught:
        find_studies("lost_table")
    assert "no study is named 'lost_table'" in str(caught.value) and reason in str(caught.value).partition("\n")[2]


def test_what_is_no_study_says_so(project: Path) -> None:
    (project / "empty.py").write_text("study = 3")
    with pytest.raises(UserError, match=r"empty\.py holds no study"):
        find_studies("empty")
    with pytest.raises(UserError, match="there is no file studies/nothing.py"):
        find_studies("studies/nothing.py")
    (project / "empty.py").unlink()
    with pytest.raises(UnknownName, match="did you mean 'ablation_calr_ms'"):
        find_studies("ablation_calr")


def test_names_are_unique(project: Path) -> None:
    (project / "ablation_calr_ms.py").write_text(MINE + "study = one('other')")
    with pytest.raises(NameCollision, match="two study files are both named 'ablation_calr_ms'"):
        find_studies("ablation_calr_ms")
    (project / "ablation_calr_ms.py").rename(project / "mine.py")
    (project / "mine.py").write_text(MINE + "study = one('ablation_calr_ms')")
    with pytest.warns(ComponentWarning, match="two studies are both named 'ablation_calr_ms': .*Both are left out"):
        found = {study.name for study in all_studies()}
    assert "no_momentum" in found and "ablation_calr_ms" not in found
    (project / "hers.py").write_text(MINE + "studies = [one('twice'), one('twin')]")
    (project / "yours.py").write_text(MINE + "studies = [one('twice'), one('own')]")
    with pytest.raises(NameCollision, match="two studies are both named 'twice'"):
        find_studies("twice")
    assert names("own") == ["own"]


def test_a_name_loads_its_own_file_alone(project: Path) -> None:
    (project / "mine.py").write_text(MINE + "study = one('mine')")
    (project / "several.py").write_text(MINE + "studies = [one('first'), one('second')]")
    before = set(sys.modules)
    assert names("mine") == ["mine"] and names("second") == ["second"]
    loaded = {name for name in set(sys.modules) - before if ".studies." in name}
    assert loaded == {"harness_components.user.studies.mine", "harness_components.user.studies.several"}


def test_a_name_that_means_a_file_and_another_files_study_is_refused(project: Path) -> None:
    """Ours was taken without a word."""
    (project / "mine.py").write_text(MINE + "study = one('ablation_calr_ms')")
    refused = r"'ablation_calr_ms' is both the study file .*/ablation_calr_ms.py and a study in .*/mine.py. Give"
    with pytest.raises(NameCollision, match=refused):
        find_studies("ablation_calr_ms")
    assert names("mine") == names("studies/mine.py") == ["ablation_calr_ms"]
    (project / "broken.py").write_text("1 / 0")  # it does no harm
    with pytest.raises(NameCollision, match=refused):
        find_studies("ablation_calr_ms")


@pytest.mark.parametrize("command", ["plan", "run", "report", "status"])
@pytest.mark.parametrize("place", ["mine.py", "studies/mine.py", "mine"])
def test_which_of_two_counts_is_said(
    place: str, command: str, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_STORE", raising=False)
    file = (project.parent if place == "mine.py" else project) / "mine.py"
    file.write_text(MINE + "study = one('ablation_calr_ms')")
    refused = ["with", "train.epochs=0"] if command == "run" else []  # nothing needs to run
    main([command, place, "--preset", "tiny", "--store", str(project), *refused])
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith("warning: study 'ablation_calr_ms' is that of ") and "mine.py; " in line
    assert line.endswith("/studies/ablation_calr_ms.py holds another one of that name, which is not used. Rename one")


def test_two_files_that_are_asked_for_at_once_are_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in ("mine.py", "yours.py"):
        (project / file).write_text(MINE + "study = one('same')")
    assert main(["plan", "mine", "studies/yours.py"]) == 2
    assert "two different studies are both named 'same': " in (said := capsys.readouterr().err)
    assert "mine.py and studies/yours.py; rename one" in said


def test_the_list_names_both(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "mine.py").write_text(MINE + "study = one('ablation_calr_ms')")
    (project / "no_momentum.py").write_text(MINE + "study = one('another')")
    assert main(["list", "studies"]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("warning: two studies are both named 'ablation_calr_ms': ") and "mine.py. Give" in first
    assert second.startswith("warning: two studies are both named 'no_momentum': ") and second.endswith("rename one")
    (project / "mine.py").unlink()
    (project / "no_momentum.py").unlink()
    assert main(["list", "studies"]) == 0
    assert not capsys.readouterr().err
