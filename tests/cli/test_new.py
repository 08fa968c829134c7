"""`harness new`: files that pass `harness check` and run as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main
from harness.components.discovery import fresh
from harness.components.preset import get_preset
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.training.trial import retrain_trial, run_trial
from tests.toy import user_folder


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with user_folder(tmp_path):
        yield tmp_path


def written(*kinds: str) -> None:
    for kind in kinds:
        assert main(["new", kind, f"my-{kind}"]) == 0


def test_new_files_pass_the_check_and_name_their_next_step(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written("method", "space", "dataset")
    assert "try it:  harness check methods/my_method.py" in capsys.readouterr().out
    with fresh():
        written("study")
        files = ["methods/my_method.py", "spaces/my_space.py", "datasets/my_dataset.py", "studies/my_study.py"]
        assert main(["check", *files]) == 0
    checked = " ".join(capsys.readouterr().out.split())
    for line in (
        "method 'my-method' (methods/my_method.py:10)",
        "ok costs 2 passes per step, as paths_per_step says",
        "ok builds 4 stand-alone networks",
        "ok is the same when it is loaded twice",
        "ok takes the first step of my-study/my-method search seed 0 under preset tiny",
    ):
        assert line in checked


def test_a_study_compares_what_the_folder_has_and_gives_results(folder: Path) -> None:
    written("method", "space", "dataset")
    with fresh():
        written("study")
        (study,) = find_studies("my_study")
        requests = expand(study, get_preset("tiny", study.about), 1)
        assert [request.trial.config.method.name for request in requests] == ["spos", "my-method"]
        start = requests[1].trial.start
        assert start is not None and (start.config.space, start.config.dataset) == ("my-space", "my-dataset")
        found = run_trial(start.config).result["found"][0]["architecture"]
        assert retrain_trial(requests[1].trial.config, tuple(found)).result["retrained_accuracy"] > 50


def test_a_study_in_an_empty_folder_takes_the_defaults_and_shows_the_ranking(folder: Path) -> None:
    written("study")
    (study,) = find_studies("my_study")
    (request,) = expand(study, get_preset("tiny"), 1)
    assert (request.trial.config.method.name, request.trial.config.benchmark) == ("spos", "digits")
    assert [column.metric for column in study.columns] == ["kendall_tau", "top1_accuracy"]


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("method", "2paths", "use letters, digits and hyphens"),
        ("method", "../mine", "use letters, digits and hyphens"),
        ("method", "class", "use letters, digits and hyphens"),
        ("space", "network", "means something else already"),
        ("space", "test_mine", "means something else already"),
        ("method", "spos", "methods/spos.py"),
        ("study", "ablation-calr-ms", "studies/ablation_calr_ms.py"),
        ("methods", "mine", "'methods' is not one of 'method', 'space', 'study', 'dataset'"),
    ],
)
def test_a_bad_or_taken_name_is_refused_and_nothing_is_written(
    folder: Path, kind: str, name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", kind, name]) == 2
    assert message in capsys.readouterr().err
    assert list(folder.iterdir()) == []


def test_an_existing_file_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "methods").mkdir()
    (folder / "methods" / "mine.py").write_text("# mine\n")
    assert main(["new", "method", "mine"]) == 2
    assert "methods/mine.py exists already" in capsys.readouterr().err
    assert (folder / "methods" / "mine.py").read_text() == "# mine\n"


@pytest.mark.long
def test_new_files_run_and_stand_in_a_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written("method", "space", "dataset")
    with fresh():
        written("study")
        assert main(["run", "my_study", "--preset", "tiny", "--seeds", "1"]) == 0
        assert main(["report", "my_study", "--preset", "tiny", "--seeds", "1"]) == 0
    assert "| my-method |" in capsys.readouterr().out
