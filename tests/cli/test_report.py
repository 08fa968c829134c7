"""`harness report`, `query` and `show` in process, on stores as runs leave them."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

from harness.cli import main
from harness.components.preset import get_preset
from harness.environment import PROJECT
from harness.stores.directory.run_directory import predictions_document, write_ranking
from harness.stores.directory.store import StoredRun
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests.stored_runs import store_run


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store") / "runs"


@pytest.fixture(scope="module")
def runs(store: Path) -> list[StoredRun]:
    """One seed of the whole ablation; one of its trials failed."""
    requests = expand(find_studies("ablation_calr_ms")[0], get_preset("tiny"), 1)
    last = len(requests) - 1
    return [
        store_run(store, request, number / 20, 60 + number, "failed" if number == last else "done", curve={1: 0.5})
        for number, request in enumerate(requests)
    ]


@pytest.fixture(autouse=True)
def usual_store(store: Path, runs: list[StoredRun], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_STORE", str(store))


def test_report_prints_the_tables_of_all_studies_with_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--preset", "tiny", "--seeds", "1"]) == 0
    printed, *others = capsys.readouterr().out.split("\n### ")
    assert any(other.startswith("Supernet training methods") for other in others)  # it has runs of that, too
    assert printed.startswith("### Ablation of CaLR and MS (Table 3 of the paper)\n\nPreset tiny: digits, 1 seed")
    assert [line.split("|")[1].strip() for line in printed.splitlines() if line.startswith("|")][2::4] == [
        *("SPOS", "FairNAS", "FSNAS")
    ]
    assert "**0.150**" in printed and "— (0 of 1 seed)" in printed
    assert "- FSNAS, CaLR, MS, seed 0: failed (run" in printed


def test_report_writes_one_file_a_study_the_same_every_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"markdown": "ablation_calr_ms.md", "latex": "ablation_calr_ms.tex", "csv": "ablation_calr_ms.csv"}
    for form, name in files.items():
        report = ["report", "ablation_calr_ms", "--preset", "tiny", "--seeds", "1", "--format", form]
        assert main([*report, "--out", str(tmp_path)]) == 0
        written = [name, "main.tex"] if form == "latex" else [name]  # a document that shows all tables
        assert capsys.readouterr().out == "".join(f"wrote {tmp_path / one}\n" for one in written)
        assert main(report) == 0
        assert capsys.readouterr().out.encode() == (tmp_path / name).read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*files.values(), "main.tex"])


def test_report_takes_conditions_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ["report", "ablation_calr_ms", "--preset", "tiny", "--seeds", "1", "--format", "csv"]
    assert main([*tiny, "--where", "method.name == 'spos'"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["Method"] for row in rows} == {"SPOS"} and len(rows) == 8
    # Runs with other settings are another table: here nobody made any.
    assert main([*tiny, "with", "optimiser.learning_rate=0.2"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["state"] for row in rows} == {"missing"}


def test_report_makes_one_page_of_several_studies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(
        "from harness.study import Bars, Column, Figure, Row, Study\n"
        "tau = Column('τ', 'kendall_tau')\n"
        "bars = [Figure('bars', 'Bars', [Bars('', tau)])]\n"
        "study = Study('mine', 'Mine', [Row({'M': 'a'}, {'method.name': 'spos'})], [tau], figures=bars)\n"
    )
    report = ["report", "ablation_calr_ms", str(tmp_path / "mine.py"), "--preset", "tiny", "--seeds", "1"]
    assert main([*report, "--format", "html", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr()
    assert printed.err == "1 of 2: ablation_calr_ms\n2 of 2: mine\n"
    files = ["index.html", "mine-bars.csv", "mine-bars.pdf", "mine-bars.svg"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == files
    values = (tmp_path / "out" / "mine-bars.csv").read_text().splitlines()
    assert values[0] == "panel,label,x,y,low,high,x_deviation,y_deviation,generation" and len(values) == 2
    page = (tmp_path / "out" / "index.html").read_text()
    assert 'id="table-ablation_calr_ms"' in page and 'id="figure-mine-bars"' in page
    assert main([*report, "--format", "html"]) == 0
    assert 'id="figure-mine-bars"' in capsys.readouterr().out
    # Tables with figures beside them, or without.
    for more, suffixes in ([], {".md", ".svg", ".pdf", ".csv"}), (["--no-figures"], {".md"}):
        out = tmp_path / "-".join(["tables", *more])
        assert main([*report, "--out", str(out), *more]) == 0
        assert {path.suffix for path in out.iterdir()} == suffixes
    capsys.readouterr()


def test_report_compares_with_the_paper(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = ["report", "ablation_calr_ms", "--preset", "tiny", "--seeds", "1", "--compare"]
    assert main(report) == 0
    assert "0.772" in capsys.readouterr().out
    assert main([*report, "--format", "csv", "--out", str(tmp_path)]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "ablation_calr_ms-compared.csv",
        *(f"ablation_calr_ms-comparisons.{suffix}" for suffix in ("csv", "pdf", "svg")),
        "ablation_calr_ms-paper.csv",
        "ablation_calr_ms.csv",
    ]
    paper = pandas.read_csv(tmp_path / "ablation_calr_ms-paper.csv")
    (mine,) = paper[
        (paper["Method"] == "SPOS") & paper["MS"] & ~paper["CaLR"] & (paper["metric"] == "kendall_tau")
    ].index
    assert (paper.paper_mean[mine], paper.paper_dataset[mine]) == (0.772, "cifar10") and paper["mean"][mine] == 0.1
    verdicts = pandas.read_csv(tmp_path / "ablation_calr_ms-compared.csv")
    assert set(verdicts.kind) >= {"primary", "statement"} and set(verdicts.verdict) <= {"no data", "undecided"}
    assert main([*report, "--format", "html"]) == 0
    assert "0.772" in capsys.readouterr().out


def test_strict_reports_all_or_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = ["report", "ablation_calr_ms", "--preset", "tiny", "--seeds", "1", "--strict"]
    assert main([*report, "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and not any(tmp_path.iterdir())
    assert "nothing was reported" in printed.err
    assert "  ablation_calr_ms: FSNAS, CaLR, MS, digits: Kendall's τ (0 of 1 seed)\n" in printed.err
    assert main([*report, "--where", "status == 'done'"]) == 0
    assert "0.150" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["report", "--format", "parquet"], "give --out"),
        (["report", "--format", "csv", "--compare"], "give --out"),
        (["report", "ablation_calr_ms", "--margin", "0.01"], "give --compare"),
        (["report", "ablation_calr_ms", "--compare", "--margin", "0"], "'0' is neither a number above 0"),
        (["report", "ablation_calr_ms", "--compare", "--margin", "kendall=1"], "did you mean 'kendall_tau'"),
        (["report", "ablation"], "did you mean 'ablation_calr_ms'"),
        (["report", "--preset", "tny"], "did you mean 'tiny'"),
        (["report"], "no study has a run under preset demo"),
        (["report", "ablation_calr_ms", "--preset", "tiny", "--where", "@x"], "cannot read '@x'"),
        (["report", "ablation_calr_ms", "with", "train.epoch=3"], "did you mean 'epochs'"),
        (["report", "ablation_calr_ms", "--format", "markdwn"], "did you mean 'markdown'"),
        (["query", "__import__('os')"], "Call is not allowed"),
        (["query", "--columns", "method.nam"], "did you mean 'method_name'"),
        (["show", "zzz"], "no run's id begins with 'zzz'"),
        (["show", ""], "is not unique"),
    ],
)
def test_a_mistake_is_answered_with_what_is_allowed(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err and "Traceback" not in printed.err
    assert printed.out == ""


def test_query_selects_and_formats(runs: list[StoredRun], capsys: pytest.CaptureFixture[str]) -> None:
    question = ["query", "method.name == 'spos' and kendall_tau > 0.05", "--columns", "run_id,method.name,kendall_tau"]
    assert main([*question, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert sorted(found, key=lambda row: str(row["kendall_tau"])) == [
        {"run_id": runs[number].id, "method_name": "spos", "kendall_tau": number / 20} for number in (2, 3)
    ]
    assert main([*question, "--format", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "run_id,method_name,kendall_tau"
    assert main(question) == 0
    printed = capsys.readouterr()
    assert runs[3].id in printed.out and printed.err == "2 runs\n"
    assert main(["query", "status == 'failed'", "--all"]) == 0
    assert runs[-1].id in capsys.readouterr().out


def test_query_names_what_is_damaged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "0123456789abcdef-1").mkdir()
    assert main(["query", "--store", str(tmp_path)]) == 0
    assert "damaged and not counted" in capsys.readouterr().err


def test_show_tells_all_of_a_done_run_by_its_prefix(runs: list[StoredRun], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", runs[3].id[:10]]) == 0
    printed = capsys.readouterr().out
    for text in (runs[3].id, "status   done", "method.name", "schedule.gamma_prime", "kendall_tau", "wall_seconds"):
        assert text in printed
    assert "1 points, last 0.5 at step 1" in printed
    assert f"runs/{runs[3].id}" in printed and "predictions.json" in printed
    assert "traceback" not in printed


def test_every_command_shows_what_was_recomputed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    requests = expand(find_studies("ablation_calr_ms")[0], get_preset("tiny"), 1)
    one, other = (store_run(tmp_path, request, 0.25) for request in requests[:2])
    config = one.trial["config"]
    judged = {"kendall_tau": 0.875, "selected": 15, "top1": None, "top1_accuracy": 61.0, "ranked": 0, "diverged": None}
    write_ranking(tmp_path / one.id, str(one.own_ranking), config, judged, {}, predictions_document(config, {}))
    here = ["--store", str(tmp_path)]
    shown = ["--columns", "kendall_tau,top1_accuracy", "--format", "csv"]
    for study in ([], ["--study", "ablation_calr_ms"]):
        assert main(["query", "seed == 0 and kendall_tau != 0.25", *study, *shown, *here]) == 0
        assert capsys.readouterr().out == "kendall_tau,top1_accuracy\n0.875,61.0\n"
    assert main(["report", "ablation_calr_ms", "--preset", "tiny", "--seeds", "1", *here]) == 0
    assert "0.875" in capsys.readouterr().out
    assert main(["show", one.id, *here]) == 0
    assert "kendall_tau    0.875\n" in capsys.readouterr().out
    assert main(["diff", one.id, other.id, *here]) == 1
    assert "kendall_tau    0.875 | 0.25\n" in capsys.readouterr().out


def test_show_lists_the_runs_of_a_study(runs: list[StoredRun], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "ablation_calr_ms"]) == 0
    first, headings, _, *lines, last = capsys.readouterr().out.splitlines()
    assert first.startswith("'ablation_calr_ms' is a study: Ablation of CaLR and MS") and "12 rows" in first
    assert headings.split() == ["run", "preset", "row", "seed", "status", "kendall_tau"]
    assert sorted(line.split()[0] for line in lines) == sorted(run.id for run in runs)
    assert sum(" failed" in line for line in lines) == 1 and "0.05" in {line.split()[-1] for line in lines}
    assert sum("SPOS CaLR MS" in line for line in lines) == 1
    assert "`harness report ablation_calr_ms`" in last
    assert main(["show", "autoformer_space"]) == 0
    assert "`harness run autoformer_space` makes them" in capsys.readouterr().out
    assert main(["show", "ablation_calr_ms", "--log"]) == 2


def test_show_prints_the_log_of_a_run(store: Path, runs: list[StoredRun], capsys: pytest.CaptureFixture[str]) -> None:
    failed = runs[-1].id
    (store / failed / "cout.txt").write_text("step 1\nstep 2\n")
    assert main(["show", failed, "--log"]) == 0
    assert capsys.readouterr().out == "step 1\nstep 2\n"


def test_tables_are_folded_to_the_terminal(store: Path) -> None:
    """The report, printed to a terminal of 60 columns: as the one in a pipe, in narrower tables."""
    command = [sys.executable, "-m", "harness", "report", "ablation_calr_ms", "--preset", "tiny", "--seeds", "1"]
    command += ["--store", str(store)]
    whole = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    reader, terminal = os.openpty()
    environment = {**os.environ, "COLUMNS": "60"}
    with subprocess.Popen(command, cwd=PROJECT, stdout=terminal, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(reader, 1 << 16):
                shown += part
        os.close(reader)
    assert process.returncode == 0
    tables = [[line for line in text.splitlines() if line.startswith("|")] for text in (whole, shown.decode())]
    wide, narrow = (max(map(len, lines)) for lines in tables)
    assert wide > 60 >= narrow
    words = [{cell.strip() for line in lines for cell in line.split("|")} - {""} for lines in tables]
    dashes = {word for every in words for word in every if set(word) <= set(":-")}
    assert words[0] - dashes == words[1] - dashes


def test_show_gives_the_traceback_of_a_failed_run(runs: list[StoredRun], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", runs[-1].id]) == 0
    printed = capsys.readouterr().out
    assert "status   failed" in printed and printed.endswith("ValueError: 5 % of a_b\n")


def test_a_query_that_finds_nothing_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "--preset", "demo"]) == 0
    printed = capsys.readouterr()
    assert printed.err.startswith("0 runs\nno run matches; stored in ")
    assert printed.err.endswith(": 11 under preset tiny\n")
