"""`harness diff` of stored runs, in process."""

from __future__ import annotations

import json
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


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with user_folder(tmp_path):
        yield tmp_path


@pytest.fixture
def requests(folder: Path) -> list[Request]:
    return expand(find_studies("ablation_calr_ms")[0], get_preset("tiny"), 1)


def test_equal_results_are_said_to_be_equal_whatever_they_cost(
    requests: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = {"tau": 0.5, "curve": {1: 0.25, 2: 0.5}, "predictions": {3: 40.0, 7: 50.0}}
    one = store_run(Path("runs"), requests[0], **outcome, cost={"wall_seconds": 1.0})  # type: ignore[arg-type]
    other = store_run(Path("runs"), requests[0], **outcome, cost={"wall_seconds": 2.0})  # type: ignore[arg-type]
    assert main(["diff", one.id, other.id]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{one.id} and {other.id}", "cost", "  wall_seconds  1.0 | 2.0", "results are equal"]


def test_every_difference_is_shown_in_its_section(requests: list[Request], capsys: pytest.CaptureFixture[str]) -> None:
    one = store_run(
        Path("runs"), requests[0], 0.5, curve={1: 0.25, 2: 0.5, 3: 0.5}, predictions={3: 40.0, 7: 50.0, 9: 1.0}
    )
    other = store_run(
        Path("runs"), requests[1], 0.75, curve={1: 0.25, 2: 0.75, 3: 0.75}, predictions={3: 40.0, 7: 60.0}
    )
    assert main(["diff", one.id, other.id]) == 1
    text = capsys.readouterr().out
    section, sections = "", dict[str, list[str]]()
    for line in text.splitlines()[1:-1]:
        if line.startswith("  "):
            sections[section].append(" ".join(line.split()))
        else:
            section = line
            sections[section] = []
    assert "schedule.name cosine | calr" in sections["configuration"]
    assert sections["result"] == ["kendall_tau 0.5 | 0.75", "ranked 3 | 2"]
    assert sections["metrics"] == ["kendall_tau, from point 2 on 0.5 at step 2 | 0.75 at step 2"]
    assert sections["predictions"] == ["1 of 2, the first architecture 7 50.0 | 60.0", "architectures 3 | 2"]
    assert text.endswith("results differ: result, metrics, predictions\n")


def test_the_environment_is_compared_package_by_package(
    requests: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    ids = []
    for version in ("1.0", "2.0"):
        run = store_run(Path("runs"), requests[0], status="failed")
        record = Path("runs") / run.id / "run.json"
        experiment = {
            "dependencies": ["torch==2.14", f"numpy=={version}"],
            "repositories": [{"url": "", "commit": f"abc{version}", "dirty": False}],
        }
        host = {"hostname": "here", "python_version": "3.11"}
        record.write_text(json.dumps(json.loads(record.read_text()) | {"experiment": experiment, "host": host}))
        ids.append(run.id)
    assert main(["diff", *ids]) == 0
    printed = capsys.readouterr().out
    assert "environment\n  commit  abc1.0 | abc2.0\n  numpy   1.0 | 2.0\n" in printed
    assert "torch" not in printed and "host" not in printed


def test_a_run_without_a_result_differs_from_one_that_has_one(
    requests: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    one = store_run(Path("runs"), requests[0], status="failed")
    other = store_run(Path("runs"), requests[0], 0.5)
    assert main(["diff", one.id, other.id]) == 1
    assert "result\n  result  failed | done\n" in capsys.readouterr().out


@pytest.mark.parametrize("shorter", [{}, {1: 0.25}])
@pytest.mark.parametrize("status", ["failed", "interrupted", "lost", "running"])
def test_a_run_that_got_less_far_contradicts_nothing(
    status: str, shorter: dict[int, float], requests: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    one = store_run(Path("runs"), requests[0], status=status, curve=shorter)
    other = store_run(Path("runs"), requests[0], status="interrupted", curve={1: 0.25, 2: 0.5})
    for pair in ((one.id, other.id), (other.id, one.id)):
        assert main(["diff", *pair]) == 0
        printed = capsys.readouterr().out
        assert printed.endswith("results are equal\n") and "metrics\n  kendall_tau" in printed
    # Where both were, they must agree; and two that are done were everywhere.
    another = store_run(Path("runs"), requests[0], status="interrupted", curve={1: 0.25, 2: 0.75, 3: 0.5})
    assert main(["diff", other.id, another.id]) == 1
    done = [store_run(Path("runs"), requests[1], 0.5, curve=curve).id for curve in ({1: 0.5}, {1: 0.5, 2: 0.5})]
    assert main(["diff", *done]) == 1
    assert capsys.readouterr().out.endswith("results differ: metrics\n")


def test_a_name_that_fits_no_run_or_several_is_one_line(
    requests: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [store_run(Path("runs"), requests[0], 0.5).id for _ in range(2)]
    assert main(["diff", ids[0], "nothing"]) == 2
    assert capsys.readouterr().err == "error: no run's id begins with 'nothing'. runs holds 2 runs\n"
    assert main(["diff", ids[0][:16], ids[1]]) == 2
    assert capsys.readouterr().err.count("\n") == 1
