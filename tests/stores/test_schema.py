"""What is stored has one schema: documents are checked against it, and the columns of `results` derive from it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pandas
import pytest

from harness import results, schema
from harness.cli import main
from harness.components.preset import get_preset
from harness.documents import problem
from harness.stores.directory.store import DirectoryStore
from harness.study import columns, frames
from harness.study.catalogue import find_studies
from harness.study.configuration import Ranking
from harness.study.expansion import expand
from harness.study.study import Request
from harness.training.cost import Meter
from tests.stored_runs import store_run

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def request_() -> Request:
    return expand(find_studies("ablation_calr_ms")[0], get_preset("tiny"), 1)[0]


def change(run: Path, name: str, edit: Change) -> None:
    """Edit a document of a done run, and its checksum: nothing but the schema can tell."""
    document = json.loads((run / name).read_text())
    edit(document)
    (run / name).write_text(json.dumps(document))
    if name != "completion.json":
        record = json.loads((run / "completion.json").read_text())
        record["files"][name] = hashlib.sha256((run / name).read_bytes()).hexdigest()
        record["sizes"][name] = (run / name).stat().st_size
        (run / "completion.json").write_text(json.dumps(record))


WRONG: dict[str, tuple[str, Change, str]] = {
    "result lacks a key": ("result.json", lambda d: d["result"].pop("selected"), "result.selected is missing"),
    "result of another type": (
        "result.json",
        lambda d: d["result"].update(kendall_tau="0.5"),
        "result.kendall_tau: expected `float | null`, got `str`",
    ),
    "nested": ("result.json", lambda d: d["result"].update(diverged={}), "result.diverged.step is missing"),
    "cost of another type": ("result.json", lambda d: d["cost"].update(passes=1.5), "cost.passes: expected `int`"),
    "no cost": ("result.json", lambda d: d.update(cost=None), "cost: expected `object`, got `null`"),
    "trial lacks a key": ("cell.json", lambda d: d.pop("overrides"), "overrides is missing"),
    "owner of another type": ("cell.json", lambda d: d.update(owner=7), "owner: expected `object`, got `int`"),
    "status of another type": ("run.json", lambda d: d.update(status=["COMPLETED"]), "status: expected `str`"),
    "trace of another type": ("run.json", lambda d: d.update(fail_trace=[1]), "fail_trace[0]: expected `str`"),
    "sizes of another type": ("completion.json", lambda d: d.update(sizes={"run.json": "9"}), "sizes[...]: "),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_a_document_lacks_or_has_wrong_is_named(
    case: str, tmp_path: Path, request_: Request, capsys: pytest.CaptureFixture[str]
) -> None:
    run = store_run(tmp_path, request_, 0.5)
    name, edit, reason = WRONG[case]
    change(tmp_path / run.id, name, edit)
    store = DirectoryStore(tmp_path)
    assert store.runs() == []
    [found] = store.problems
    assert found.place == str(tmp_path / run.id / name) and reason in found.reason
    assert main(["store", "check", "--store", str(tmp_path)]) == 1
    printed = "".join(capsys.readouterr())
    assert reason in printed and "Traceback" not in printed


def test_predictions_are_checked_where_they_are_read(
    tmp_path: Path, request_: Request, capsys: pytest.CaptureFixture[str]
) -> None:
    run = store_run(tmp_path, request_, 0.5, predictions={3: 50.0})
    change(tmp_path / run.id, "predictions.json", lambda d: d["accuracies"].update({"3": "50"}))
    assert len(DirectoryStore(tmp_path).runs()) == 1  # lists and tables do not need them
    with pytest.raises(Exception, match=r"does not hold predictions: accuracies\[\.\.\.\]: expected `float"):
        results.predictions(run.id, store=tmp_path)
    assert main(["store", "check", "--store", str(tmp_path)]) == 1
    assert "accuracies[...]: expected `float | null`, got `str`" in "".join(capsys.readouterr())


def test_keys_of_a_newer_version_are_kept(tmp_path: Path, request_: Request) -> None:
    run = store_run(tmp_path, request_, 0.5, more={"regret": 1.5, "newer": {"a": 2}}, cost={"joules": 7})
    store = DirectoryStore(tmp_path)
    [read] = store.runs()
    assert not store.problems and read.result is not None and read.result["regret"] == 1.5
    [row] = results.runs(store=tmp_path).to_dict("records")
    assert (row["run_id"], row["regret"], row["newer_a"], row["joules"]) == (run.id, 1.5, 2, 7)


def test_a_key_that_is_added_to_the_schema_is_a_typed_column(
    tmp_path: Path, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wider(schema.Result, total=False):
        regret: Annotated[float | None, "the best true accuracy minus that of the architecture ranked first"]
        finds: Annotated[int, "the number of architectures that the search found"]

    store_run(tmp_path, request_, 0.5)
    assert "regret" not in results.runs(store=tmp_path)
    for module in (frames, columns):
        monkeypatch.setattr(module, "Result", Wider)
    frame = results.runs(store=tmp_path, panel=True)
    assert frame.dtypes[["regret", "finds"]].astype(str).tolist() == ["float64", "Int64"]
    assert pandas.isna(frame["regret"][0]) and pandas.isna(frame["finds"][0])
    assert results.columns().set_index("column").meaning["finds"] == "the number of architectures that the search found"


def test_what_training_writes_is_what_the_schema_says() -> None:
    import torch

    cost = Meter(torch.device("cpu"), ranks=2).json() | {"threads": 1, "arithmetic": "products ieee"}
    assert set(cost) | {"gpu"} == set(schema.described(schema.Cost))  # on a GPU the cost has its model
    assert problem(schema.Cost, cost) is None
    assert problem(schema.Result, {**schema.UNRANKED, "diverged": {"step": 3, "loss": "nan"}}) is None
    assert list(schema.UNRANKED) == ["kendall_tau", "selected", "top1", "top1_accuracy", "ranked", "diverged"]


def test_settings_say_which_keys_are_not_computed() -> None:
    assert Ranking(top_share=0.1, valid_loss=True).left_out == ()
    assert set(Ranking(top1=False, top_share=0.1, valid_loss=True).left_out) == set(schema.needing("top1"))
    assert schema.needing("top1")[:2] == ("top1_accuracy", "top1")
    assert set(Ranking().left_out) == {*schema.needing("top_share"), "valid_loss"}
