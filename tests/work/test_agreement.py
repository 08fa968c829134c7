"""Workers agree on files: the first tells the store, the others must have the same, in a directory and in MongoDB."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from harness.stores.board import FILES, JOBS, Board
from harness.stores.directory.records import DirectoryRecords
from harness.stores.mongo.records import MongoRecords
from harness.study.catalogue import find_studies
from harness.work.agreement import Agreement, OtherFiles
from harness.work.plan import Asked
from tests.conftest import TOY
from tests.many_trials import SLOW, STUDY
from tests.toy import user_folder

PROJECT = {
    "spaces/toy.py": TOY,
    "methods/slow.py": SLOW.format(seconds=0),
    "studies/many.py": STUDY.format(milliseconds=0, epochs=1),
}


@pytest.fixture(params=["directory", "mongo"])
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    if request.param == "directory":
        return Board(DirectoryRecords(tmp_path / "runs"))
    database: Database[dict[str, Any]] = request.getfixturevalue("mongo_database")
    return Board(MongoRecords(database))


def agreement(folder: Path, board: Board, **overrides: Any) -> Agreement:
    """That of a worker of its own, in that folder."""
    with user_folder(folder):
        return Agreement.of(Asked(find_studies("many"), "tiny", overrides=overrides), board)


def difference(one: Agreement) -> str:
    with pytest.raises(OtherFiles) as caught:
        one.check()
    return str(caught.value)


def test_the_first_worker_tells_and_the_others_are_compared(board: Board, tmp_path: Path, toy_table: Any) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    toy_table.write(folder / "toy.npz")
    with user_folder(folder, PROJECT):
        pass
    first = agreement(folder, board)
    names = first.files["many"]
    assert {*PROJECT, "methods/schedules.py", "presets/nasbench201.py"} <= {*names}  # ours count, too
    first.check()
    agreement(folder, board).check()
    (note,) = board.all(FILES).values()
    assert note["study"] == "many" and len(note["files"]["methods/slow.py"]) == 64
    (folder / "methods" / "slow.py").write_text(PROJECT["methods/slow.py"] + "\n")
    said = difference(agreement(folder, board))
    assert said.count(" here, ") == 1 and f"{note['files']['methods/slow.py'][:12]} there" in said
    # A worker that runs finds out, too: components are loaded anew for each of its trials.
    assert "methods/slow.py" in difference(first)
    (folder / "studies" / "many.py").write_text(PROJECT["studies/many.py"] + "\n")
    assert "studies/many.py" in difference(agreement(folder, board))
    agreement(folder, board, **{"optimiser.learning_rate": 0.2}).check()  # another request, begun now
    second = agreement(folder, board)
    second.tell()
    second.check()
    for name, text in PROJECT.items():
        (folder / name).write_text(text)
    assert "methods/slow.py" in difference(agreement(folder, board))


def test_a_board_keeps_the_first_note_until_it_is_replaced_or_removed(board: Board) -> None:
    assert board.all(JOBS) == {}
    assert board.post(JOBS, "1", {"studies": ["a"], "a.b/$c": 1}) == {"studies": ["a"], "a.b/$c": 1}
    assert board.post(JOBS, "1", {"studies": ["b"]})["studies"] == ["a"]
    board.replace(JOBS, "1", {"studies": ["c"]})
    board.replace(JOBS, "2", {})
    board.post(FILES, "1", {})
    assert board.all(JOBS) == {"1": {"studies": ["c"]}, "2": {}}
    board.remove(JOBS, "1")
    board.remove(JOBS, "1")
    assert board.all(JOBS) == {"2": {}} and board.all(FILES) == {"1": {}}
