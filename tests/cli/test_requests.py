"""`harness plan` and `status`, and the mistakes that `run` and `plan` refuse, in process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main
from harness.components.preset import get_preset
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.study import Request
from tests.stored_runs import store_run
from tests.toy import user_folder

TINY = ["--preset", "tiny", "--seeds", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with user_folder(tmp_path):
        yield tmp_path


@pytest.fixture
def requests(folder: Path) -> list[Request]:
    """The ablation's, one seed."""
    return expand(find_studies("ablation_calr_ms")[0], get_preset("tiny"), 1)


def test_plan_counts_what_is_there_and_estimates_what_is_left(
    requests: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    store_run(Path("runs"), requests[0], 0.5, cost={"wall_seconds": 100.0})
    store_run(Path("runs"), requests[1], status="failed")
    assert main(["plan", "ablation_calr_ms", *TINY]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ablation_calr_ms: Ablation of CaLR and MS, 12 trials, 1 done"
    assert [line.split()[:2] for line in lines[2:5]] == [["1", "done"], ["10", "waiting"], ["1", "failed"]]
    assert lines[-1].startswith("about 16 min 40 s one by one")


def test_plan_of_nothing_done_and_of_everything_done(
    requests: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    only = ["--only", "method.name=spos,schedule.name=cosine,clusters.name=none"]
    assert main(["plan", "ablation_calr_ms", *TINY, *only]) == 0
    assert capsys.readouterr().out.endswith("no estimate: no trial of preset tiny is done yet\n")
    store_run(Path("runs"), requests[0], 0.5)
    assert main(["plan", "ablation_calr_ms", *TINY, *only]) == 0
    assert capsys.readouterr().out.endswith("nothing to run\n")
    assert main(["plan", "--all", *TINY]) == 0
    assert "ablation_calr_ms: Ablation of CaLR and MS, 12 trials, 1 done" in capsys.readouterr().out


def test_plan_of_rankings_alone_gives_no_estimate(requests: list[Request], capsys: pytest.CaptureFixture[str]) -> None:
    for request in requests[:2]:
        store_run(Path("runs"), request, 0.5)
    only = ["--only", "method.name=spos,clusters.name=none"]
    ranked = ["plan", "ablation_calr_ms", *TINY, *only, "with", "rank.images=32"]
    assert main(ranked) == 0
    assert capsys.readouterr().out.endswith("\n2 rankings of stored weights; time not estimated\n")


def test_status_counts_by_study_and_preset_and_names_what_is_damaged(
    requests: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    for request, status in zip(requests, ["done", "failed", "lost", "interrupted", "running"], strict=False):
        store_run(Path("runs"), request, 0.5, status=status)
    damaged = Path("runs") / store_run(Path("runs"), requests[5], 0.5).id / "result.json"
    damaged.write_text(damaged.read_text()[:-20])
    assert main(["status", "ablation_calr_ms", "--seeds", "1"]) == 0
    heading, figures, empty, title, problem = capsys.readouterr().out.splitlines()
    assert " ".join(heading.split()) == "study preset trials done running failed lost interrupted waiting"
    assert " ".join(figures.split()) == "ablation_calr_ms tiny 12 1 1 1 1 1 7"
    assert (empty, title) == ("", "not usable in runs:")
    assert problem.startswith(f"  {damaged}: ")


def test_status_of_an_empty_folder_shows_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 0
    assert "ablation_calr_ms demo 36 0 0 0 0 0 36" in " ".join(capsys.readouterr().out.split())
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a study, by file or by name, or use --all. Known: ablation_calr_ms"),
        (["ablation_calr_ms", "--all"], "either name studies or use --all"),
        (["ablation_clar_ms"], "did you mean 'ablation_calr_ms'"),
        (["no/such.py"], "there is no file no/such.py"),
        (["ablation_calr_ms", "--preset", "dmo"], "did you mean 'demo'"),
        (["ablation_calr_ms", "--seeds", "0"], "0 is not in the range x>=1"),
        (["ablation_calr_ms", "--only", "method.name=spso"], "existing values: fairnas, fsnas, spos"),
        (["ablation_calr_ms", "--only", "spos"], "expected key=value"),
        (["ablation_calr_ms", "with", "train.epochs=0"], "train.epochs must be at least 1, not 0"),
        (["ablation_calr_ms", "with", "train.epochz=1"], "no configuration key 'train.epochz'; did you mean 'epochs'?"),
        (["ablation_calr_ms", "with", "trian.epochs=1"], "no configuration section 'trian'"),
        (["ablation_calr_ms", "with", "schedule.gamma_prime=0"], "schedule.gamma_prime must be above 0"),
        (["ablation_calr_ms", "with", "clusters.edges=7"], "clusters.edges must be 1 to"),
        (["ablation_calr_ms", "with", "method.name=spso"], "did you mean 'spos'"),
        (["ablation_calr_ms", "with", "seed=3"], "use --seeds"),
        (["ablation_calr_ms", "with", "--jobs", "2"], "put options before `with`"),
    ],
)
def test_a_mistake_is_one_message_and_exit_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "0"], "0 is not in the range x>=1"),
        (["--threads", "0"], "0 is not in the range x>=1"),
        (["--retry", "done"], "'done' is not one of 'failed', 'lost', 'all'"),
        (["--device", "gpu"], "allowed are cpu, cuda and cuda:NUMBER"),
        (["--store", "file"], "the store file is not a directory"),
        (["--store", "file/runs"], "the store file/runs: Not a directory"),
        (["with", "train.epochs=0"], "train.epochs must be at least 1, not 0"),
    ],
)
def test_run_refuses_before_anything_runs(
    folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "file").touch()
    assert main(["run", "ablation_calr_ms", *TINY, *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and "Traceback" not in captured.err
    assert captured.out == ""
    assert not (folder / "runs").exists()


def test_a_study_that_does_not_import_shows_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "broken.py").write_text("from harness.study import Study\n\nstudy = Studi()\n")
    assert main(["plan", "broken.py"]) == 2
    assert f"{folder / 'broken.py'}:3 does not import: NameError" in capsys.readouterr().err
    (folder / "empty.py").write_text("")
    assert main(["plan", "empty.py"]) == 2
    assert "holds no study" in capsys.readouterr().err
