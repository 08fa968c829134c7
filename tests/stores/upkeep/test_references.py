"""References on their way: mirrored by a sync, carried by archives, checked, and never replaced by other ones."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from harness.errors import DataError
from harness.schema import UNRANKED
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.store import REFERENCES, MongoStore
from harness.stores.mongo.sync import sync
from harness.stores.upkeep.archive import export_runs
from harness.stores.upkeep.checking import check_database, check_directory
from harness.stores.upkeep.importing import import_into_database, import_into_directory
from harness.stores.upkeep.mirror_checking import check_mirror
from tests.stores.conftest import trial
from tests.stores.upkeep.test_archive import repack, resealed, tree

Make = Callable[..., Path]
Mongo = Database[dict[str, Any]]
KEYS = ("0" * 31 + "a", "0" * 31 + "b")


def reference(tau: float = 0.25) -> dict[str, Any]:
    return {"reference": "random", "cell": trial().json(), "result": {**UNRANKED, "kendall_tau": tau}}


@pytest.fixture
def filled(store: DirectoryStore, make_run: Make) -> DirectoryStore:
    """A run and two references."""
    make_run()
    assert store.add_references({key: reference() for key in KEYS}) == list(KEYS)
    return store


def spoil(store: DirectoryStore, key: str, text: str = '{"half') -> None:
    (store.path / "references" / f"{key}.json").write_text(text)


def export(store: Any, target: Path) -> bytes:
    export_runs(store, store.runs(), target, references=store.references()[0])
    return target.read_bytes()


def test_a_sync_copies_them_once(filled: DirectoryStore, mongo_database: Mongo) -> None:
    first, second = sync(filled, mongo_database), sync(filled, mongo_database)
    assert (first.references, second.references) == (2, 0) and not first.failed | second.failed
    assert MongoStore(mongo_database).references() == (filled.references()[0], [])
    mongo_database[REFERENCES].update_one({"_id": KEYS[0]}, {"$set": {"text": "{"}})  # damaged there, and whole here
    assert sync(filled, mongo_database).references == 1
    assert MongoStore(mongo_database).recall(KEYS[0]) == reference()


def test_a_sync_tells_of_damaged_and_of_other_ones_and_copies_the_rest(
    filled: DirectoryStore, mongo_database: Mongo
) -> None:
    third = "0" * 31 + "c"
    filled.remember(third, reference())
    spoil(filled, KEYS[0])
    MongoStore(mongo_database).remember(KEYS[1], reference(0.75))
    done = sync(filled, mongo_database)
    assert done.references == 1 and done.projected == 1
    assert [place.rpartition(" ")[2] for place in done.failed] == list(KEYS)
    assert ["makes it again" in reason for reason in done.failed.values()] == [True, False]
    assert MongoStore(mongo_database).recall(KEYS[1]) == reference(0.75)
    assert MongoStore(mongo_database).recall(third) == reference()


def test_an_archive_carries_them_from_and_to_both_kinds_of_store(
    filled: DirectoryStore, tmp_path: Path, mongo_database: Mongo
) -> None:
    whole = export(filled, tmp_path / "a.tar")
    other = tmp_path / "other"
    assert import_into_directory(tmp_path / "a.tar", other).references == list(KEYS)
    assert tree(other) == tree(filled.path)
    again = import_into_directory(tmp_path / "a.tar", other)
    assert (again.references, len(again.present)) == ([], 1)
    assert import_into_database(tmp_path / "a.tar", mongo_database, 1 << 20).references == list(KEYS)
    again = import_into_database(tmp_path / "a.tar", mongo_database, 1 << 20)
    assert (again.references, again.added, len(again.present)) == ([], [], 1)
    assert export(MongoStore(mongo_database), tmp_path / "b.tar") == whole
    assert export(DirectoryStore(other), tmp_path / "c.tar") == whole


def test_imported_predictions_go_the_same_ways(store: DirectoryStore, tmp_path: Path, mongo_database: Mongo) -> None:
    own = {"imported": "Mine", "space": "toy", "dataset": "toy", "source": "a.csv", "sha256": "0" * 64}
    document = {**own, "accuracies": {"0": 1.5, "3": 2.0}}
    store.add_references({KEYS[0]: document})
    sync(store, mongo_database)
    assert MongoStore(mongo_database).recall(KEYS[0]) == document
    export(store, tmp_path / "a.tar")
    other = DirectoryStore(tmp_path / "other")
    assert import_into_directory(tmp_path / "a.tar", other.path).references == [KEYS[0]]
    assert other.references() == ({KEYS[0]: document}, []) and not list(check_directory(other))
    with pytest.raises(DataError, match="holds another result"):
        other.add_references({KEYS[0]: {**document, "accuracies": {"0": 1.5}}})
    spoil(other, KEYS[0], json.dumps(own))
    (finding,) = check_directory(other)
    assert "accuracies is missing" in finding.reason and "unless it was imported" in finding.reason
    for place in (store, MongoStore(mongo_database)):
        place.forget(KEYS[0])
        assert place.references() == ({}, [])


def test_a_newer_version_may_have_measured_more(filled: DirectoryStore, tmp_path: Path) -> None:
    export(filled, tmp_path / "a.tar")
    more = reference() | {"result": {**reference()["result"], "panel": {"all": {"tau": 0.5, "count": 30}}}}
    other = DirectoryStore(tmp_path / "other")
    other.remember(KEYS[0], more)
    assert import_into_directory(tmp_path / "a.tar", other.path).references == [KEYS[1]]
    assert other.recall(KEYS[0]) == more


def test_an_archive_without_any_is_as_it_was_before_there_were_any(filled: DirectoryStore, tmp_path: Path) -> None:
    shutil.rmtree(filled.path / "references")
    content = export(filled, tmp_path / "a.tar")
    assert b'"schema": 1' in content and b"references" not in content


def test_nothing_is_imported_where_one_contradicts_or_is_damaged(
    filled: DirectoryStore, tmp_path: Path, mongo_database: Mongo
) -> None:
    export(filled, tmp_path / "a.tar")
    other, database = DirectoryStore(tmp_path / "other"), MongoStore(mongo_database)
    for place in (other, database):
        place.remember(KEYS[0], reference(0.75))
    with pytest.raises(DataError, match=f"holds another result of reference {KEYS[0]}; nothing was added"):
        import_into_directory(tmp_path / "a.tar", other.path)
    with pytest.raises(DataError, match="another result"):
        import_into_database(tmp_path / "a.tar", mongo_database, 1 << 20)
    assert other.ids() == database.ids() == [] and other.recall(KEYS[1]) is database.recall(KEYS[1]) is None

    changed = repack(tmp_path / "a.tar", tmp_path / "b.tar", lambda members: [*members[:-1], (members[-1][0], b"{}")])
    with pytest.raises(DataError, match="bytes instead of"):
        import_into_directory(changed, tmp_path / "third")

    def rename(document: dict[str, Any]) -> None:
        document["references"] = {f"../{key}": one for key, one in document["references"].items()}

    forged = repack(tmp_path / "a.tar", tmp_path / "c.tar", lambda members: resealed(members, rename))
    with pytest.raises(DataError, match="which is not the key of a reference"):
        import_into_directory(forged, tmp_path / "third")
    (filled.path / "references" / f"{KEYS[0]}.json").write_text(json.dumps({"reference": 1}))
    export_runs(filled, filled.runs(), tmp_path / "d.tar", references={KEYS[0]: {"reference": 1}})
    with pytest.raises(DataError, match=f"references/{KEYS[0]}.json: .*nothing was imported"):
        import_into_directory(tmp_path / "d.tar", tmp_path / "third")
    assert not list((tmp_path / "third").iterdir())


def test_a_check_names_and_repairs_them(filled: DirectoryStore, mongo_database: Mongo) -> None:
    database = MongoStore(mongo_database)
    sync(filled, mongo_database)
    assert not [*check_directory(filled, database), *check_mirror(filled, mongo_database), *check_database(database)]
    spoil(filled, KEYS[0])
    (damaged,) = check_directory(filled, database)
    assert damaged.kind == "damaged" and KEYS[0] in damaged.place and damaged.repair is not None
    assert damaged.repair() == "restored from the database" and filled.recall(KEYS[0]) == reference()
    mongo_database[REFERENCES].delete_one({"_id": KEYS[1]})
    (missing,) = check_mirror(filled, mongo_database)
    assert missing.reason == "is not in the database" and missing.repair is not None
    assert missing.repair() == "copied" and not [*check_mirror(filled, mongo_database)]
