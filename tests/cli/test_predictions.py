"""Predictions from elsewhere: read strictly, judged as a run with the same predictions, kept with the runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.cli import main
from harness.components.discovery import component
from harness.components.preset import Preset
from harness.components.registries import SPACES
from harness.schema import OBSERVED, PANEL
from harness.stores.directory.store import DirectoryStore
from harness.study.configuration import RunConfig
from harness.study.expansion import expand
from harness.study.layout import Column, Row
from harness.study.predictions import judged, stored
from harness.study.study import Study
from harness.training.trial import run_trial
from tests.stored_runs import store_run
from tests.toy import toy_config

Capture = pytest.CaptureFixture[str]

TOY = ["--space", "toy", "--dataset", "toy"]
ROWS = [f"{number},{value}" for number, value in enumerate([5, 5, 5, 5, 20, 31, 30, 40, 50, 51, 52, 53])]
"""A prediction for each of the toy's twelve architectures."""
STUDY = Study(
    "one",
    "One",
    [Row({"CaLR": False, "Method": "SPOS"})],
    [Column("τ", "kendall_tau"), Column("Over all", "panel.all.count", digits=0), Column("Passes", "passes", digits=0)],
    group="Method",
)


@pytest.fixture(autouse=True)
def _empty_store(toy_project: Path) -> Iterator[None]:
    """The toy's folder is the current directory; its store is empty before and after."""
    yield
    shutil.rmtree("runs", ignore_errors=True)


def bring(text: str, *more: str, name: str = "Mine", file: str = "mine.csv") -> int:
    Path(file).write_text(text)
    return main(["predictions", "import", file, "--as", name, *TOY, *more])


def kept() -> list[str]:
    return [one.name for one in stored(DirectoryStore(Path("runs")))]


def test_an_imported_file_is_judged_as_a_run_that_predicts_the_same() -> None:
    settings = {"network": {"width": 4, "depth": 1}, "train": {"epochs": 1, "batch_size": 512}}
    rank = {"images": 32, "candidates": 40, "bins": 40, "top_share": 0.3, "top_sample": 20}
    config = RunConfig.from_json({**settings, "rank": rank})
    ran = run_trial(config)
    space = SPACES.get(config.space)()
    lines = [f'"{space.format(one)}", {value.accuracy!r}' for one, value in ran.predictions.items()]
    Path("mine.csv").write_text("\n".join(["Arch,Predicted", *reversed(lines)]))
    about = ["--space", config.space, "--dataset", config.dataset]
    assert main(["predictions", "import", "mine.csv", "--as", "Mine", *about, "--partial"]) == 0
    (mine,) = stored(DirectoryStore(Path("runs")))
    found = judged(mine, str(config.benchmark), config.rank)
    # A file holds no losses.
    left_out = (OBSERVED, "kendall_tau_by_loss")
    assert found == {key: value for key, value in ran.result.items() if key not in left_out}
    assert found[PANEL]["all"]["count"] == len(lines) > 40 and found["complexity_bias"] is not None


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.csv", "\n".join(ROWS)),
        ("b.csv", "note,accuracy,index\n" + "\n".join(f"x,{row.split(',')[1]},{row.split(',')[0]}" for row in ROWS)),
        ("c.json", json.dumps({row.split(",")[0]: float(row.split(",")[1]) for row in ROWS})),
        ("d.json", json.dumps([[int(row.split(",")[0]), float(row.split(",")[1])] for row in ROWS])),
        ("e.json", json.dumps([{"index": row.split(",")[0], "accuracy": row.split(",")[1]} for row in ROWS])),
    ],
)
def test_files_of_every_form_give_the_same_predictions(file: str, text: str) -> None:
    assert bring(text, file=file) == 0
    (mine,) = stored(DirectoryStore(Path("runs")))
    assert dict(mine.accuracies) == {row.split(",")[0]: float(row.split(",")[1]) for row in ROWS}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ROWS[:-2], "missing architectures (2 of 12; --partial allows that): 2 1 0; 2 1 1\n"),
        ([*ROWS, "3,4.0"], "architectures that occur again (1): line 13: 0 1 1, as line 4\n"),
        ([*ROWS[:-1], "12,4"], "entries that cannot be used (1): line 12: toy has architectures 0 to 11, not 12\n"),
        ([*ROWS[:-1], "11,nan"], "entries that cannot be used (1): line 12: 'nan' is not a finite number\n"),
        ([*ROWS[:-1], "11"], "entries that cannot be used (1): line 12: the prediction is missing\n"),
        (["7,7"] * 6, "architectures that occur again (5): line 2: 1 1 1, as line 1"),
        (["a,b,c"], "its first line has 3 columns and no headings; name them in the first line: architecture or arch"),
        (["arch,index,accuracy"], "2 of its columns are the architecture"),
        ([], "missing architectures (12 of 12; "),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_stored(text: list[str], said: str, capsys: Capture) -> None:
    assert bring("\n".join(text)) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: mine.csv: ") and "nothing was stored" in error
    assert said in error
    assert kept() == [] and not Path("runs").exists()


def test_json_that_is_wrong_is_named(capsys: Capture) -> None:
    assert bring('{"1": 2, "1": 3}', file="mine.json") == 2
    assert "architectures that occur again (1): entry 2" in capsys.readouterr().err
    assert bring("[1, [2]]", "--partial", file="mine.json") == 2
    assert "entries that cannot be used (2): entry 1: the prediction is missing" in capsys.readouterr().err
    assert bring("{", file="mine.json") == 2
    assert "mine.json: cannot be read as JSON" in capsys.readouterr().err
    assert bring("{}", "--partial", file="mine.json") == 2
    assert "it holds no predictions" in capsys.readouterr().err


def test_a_name_has_one_set_of_predictions_until_it_is_removed(capsys: Capture) -> None:
    assert bring("\n".join(ROWS)) == 0 and bring("\n".join(ROWS)) == 0
    assert bring("\n".join([*ROWS[:-1], "11,3"])) == 2
    assert "runs holds other predictions named 'Mine' for toy on toy; give another name" in capsys.readouterr().err
    assert bring("\n".join(ROWS), name=" ") == 2 and "1 to 60 printable characters" in capsys.readouterr().err
    assert main(["predictions", "list"]) == 0
    assert "Mine    toy      toy                    12  mine.csv" in capsys.readouterr().out
    assert main(["predictions", "show", "Mine"]) == 0
    shown = capsys.readouterr().out
    assert "by benchmark toy" in shown and "all              tau null, count 12" in shown
    assert main(["predictions", "remove", "Mien"]) == 2
    assert "did you mean 'Mine'?" in capsys.readouterr().err
    assert main(["predictions", "remove", "Mine"]) == 0
    assert kept() == [] and bring("\n".join([*ROWS[:-1], "11,3"])) == 0


def test_tables_show_it_as_a_marked_row() -> None:
    preset = Preset("toy", "for this test", seeds=1, datasets=("toy",), settings={"space": "toy", "rank.bins": 9})
    study, store = STUDY, DirectoryStore(Path("runs"))
    (request,) = expand(study, preset)
    store_run(Path("runs"), request, 0.25, preset="toy")
    assert bring("\n".join(ROWS)) == 0
    table = component("reports.tables").build(study, preset, store)
    ran, given = (block[0] for block in table.blocks)
    assert (given.labels, given.source, given.name) == ((None, "Mine (imported)"), "imported", "Mine")
    assert [value.mean for value in ran.values] == ["0.250", "", "30"]
    (mine,) = stored(store)
    expected = judged(mine, "toy", request.trial.config.rank)["kendall_tau"]
    assert [value.mean for value in given.values] == [f"{expected:.3f}", "12", ""]
    assert "Mine (imported): predictions from mine.csv, not runs; judged as the runs are." in table.notes
    assert not any(value.best for value in given.values)


def test_what_needs_others_than_were_predicted_is_missing() -> None:
    """Two bins: their best are the architectures 5 and 11; the best half are 6 to 11."""
    chosen = [row for row in ROWS if row.split(",")[0] in ("5", "11")]
    assert bring("\n".join(chosen), "--partial") == 0
    (mine,) = stored(DirectoryStore(Path("runs")))
    ranking = replace(toy_config().rank, bins=2, top_share=0.5)
    result = judged(mine, "toy", ranking)
    assert (result["kendall_tau"], result["selected"], result["top1_accuracy"]) == (1.0, 2, None)
    assert "complexity_bias" not in result


def test_part_of_the_architectures_has_what_can_be_said_of_it() -> None:
    assert bring("\n".join(ROWS[:6]), "--partial") == 0
    (mine,) = stored(DirectoryStore(Path("runs")))
    result = judged(mine, "toy", toy_config().rank)
    assert (result["kendall_tau"], result["top1"], result["ranked"]) == (None, None, 6)
    assert result[PANEL]["all"] == {"tau": None, "count": 6}
