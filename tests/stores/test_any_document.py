"""Any JSON in place of any field of any stored document: readers name it, raise nothing, and count nothing wrong."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import Int64
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo.database import Database

from harness import results, schema
from harness.cli import main
from harness.components.preset import get_preset
from harness.documents import problem, sealed
from harness.errors import HarnessError
from harness.stores.claims import Claims
from harness.stores.directory.records import DirectoryRecords
from harness.stores.directory.run_directory import declare_invalid, write_ranking
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo.projection import project
from harness.stores.mongo.records import MongoRecords
from harness.stores.mongo.seal import seal
from harness.stores.mongo.store import MongoStore
from harness.stores.store import Store
from harness.stores.stored import StoredRun
from harness.stores.upkeep.archive import Manifest, export_runs
from harness.stores.upkeep.checking import Finding, check_database, check_directory, orphaned
from harness.stores.upkeep.cleaning import busy_trials, done_trials
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.work.plan import make_plan
from tests.stored_runs import NO_PREDICTIONS, judged, store_run

STUDY, PRESET, KEY = "ablation_calr_ms", "tiny", "0123456789abcdef"
RANKING = "ab" * 8
"""A further ranking, which has no checksum of its own."""

SETTINGS = settings(
    max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
REMOVED = object()
INT64 = st.integers(-(2**63), 2**63 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | INT64 | FINITE | st.text("aZ0.-/é", max_size=6)
JSON = LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(st.text("ab"), LEAVES, max_size=2)
HUGE = st.sampled_from([10**30, -(10**400), 1e300, "9" * 50, "2026-13-01", "0001-01-01T00:00:00"])


def places(document: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every field."""
    inside = document.items() if isinstance(document, dict) else enumerate(document) if type(document) is list else ()
    for key, value in inside:
        yield (*place, key)
        yield from places(value, (*place, key))


def changed(document: Any, data: st.DataObject, values: st.SearchStrategy[Any]) -> Any:
    """The document with another value in one place, or without it."""
    document = copy.deepcopy(document)
    *outer, last = data.draw(st.sampled_from(list(places(document))))
    inside = document
    for key in outer:
        inside = inside[key]
    value = data.draw(st.just(REMOVED) | values)
    if value is REMOVED:
        del inside[last]
    else:
        inside[last] = value
    return document


def taken(run: StoredRun) -> tuple[Any, ...]:
    """All that tables and questions take from a run that counts."""
    return run.key, run.result, run.cost, {key: run.rankings[key] for key in run.rankings if key != RANKING}


def counted(store: Store) -> dict[str, Any]:
    return {run.id: taken(run) for run in store.runs() if run.counts}


def read_all(
    store: Store, claims: Claims, check: Callable[[], Iterator[Finding]], whole: dict[str, Any], run_id: str
) -> None:
    """What status, query, check and clean read where that run is changed. Only what reads a single file may raise."""
    runs = store.runs()
    assert {run.id: taken(run) for run in runs if run.counts}.items() <= whole.items()
    for run in (one for one in runs if one.id == run_id):
        asked = find_studies(STUDY)
        make_plan(asked, get_preset(PRESET, asked[0].about), runs, seeds=1, check=False)
        results.runs(store=store, all=True)
        for use in (store.files, store.metrics, store.predictions):
            with contextlib.suppress(HarnessError):
                use(run)
    list(check())
    list(orphaned(claims, "here"))
    busy_trials([claims], runs)
    done_trials(runs)
    with contextlib.suppress(HarnessError):
        claims.holder(KEY)


@dataclass(frozen=True)
class Stored:
    """A store of every kind of document."""

    path: Path
    whole: dict[str, Any]
    names: dict[str, Path]
    """The file of each kind of document."""


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    path = tmp_path_factory.mktemp("any")
    request, *others = expand(find_studies(STUDY)[0], get_preset(PRESET), 1)
    done = store_run(path, request, 0.5, curve={1: 0.25}, predictions={3: 50.0}, observed={"kendall_tau": [[1, 0.25]]})
    failed = store_run(path, others[0], status="failed")
    lost = store_run(path, others[1], status="lost", curve={1: 0.25})
    invalid = store_run(path, others[2], 0.25)
    write_ranking(path / done.id, RANKING, {"rank": {}, "benchmark": "x"}, judged(0.25), {}, NO_PREDICTIONS)
    declare_invalid(path / invalid.id, "wrong data")
    store = DirectoryStore(path)
    assert Claims(DirectoryRecords(store.path)).acquire(KEY) is not None
    reference = {"reference": "parameters", "cell": request.trial.json(), "result": judged(0.5)}
    store.remember("a" * 32, reference)
    whole = counted(store)
    names = {
        "trial of a done run": path / done.id / "cell.json",
        "record of a done run": path / done.id / "run.json",
        "result": path / done.id / "result.json",
        "completion": path / done.id / "completion.json",
        "curves": path / done.id / "metrics.json",
        "predictions": path / done.id / "predictions.json",
        "ranking": path / done.id / "rankings" / f"{RANKING}.json",
        "mark": path / invalid.id / "invalid.json",
        "trial of a failed run": path / failed.id / "cell.json",
        "failed record": path / failed.id / "run.json",
        "trial of a lost run": path / lost.id / "cell.json",
        "points of a lost run": path / lost.id / "metrics.jsonl",
        "claim": store.claims / KEY / "1",
        "reference": path / "references" / f"{'a' * 32}.json",
        "index": path / "index" / f"{done.id[:2]}.json",
    }
    return Stored(path, whole, names)


KINDS = (
    "trial of a done run",
    "record of a done run",
    "result",
    "completion",
    "curves",
    "predictions",
    "ranking",
    "mark",
    "trial of a failed run",
    "failed record",
    "trial of a lost run",
    "points of a lost run",
    "claim",
    "reference",
    "index",
)


@pytest.mark.parametrize("kind", KINDS)
@SETTINGS
@given(data=st.data())
def test_any_json_in_any_field_of_a_file(stored: Stored, kind: str, data: st.DataObject) -> None:
    file = stored.names[kind]
    before = file.read_bytes()
    store = DirectoryStore(stored.path)
    try:
        file.write_text(json.dumps(changed(json.loads(before), data, JSON | HUGE)) + "\n")
        claims = Claims(DirectoryRecords(store.path))
        read_all(store, claims, lambda: check_directory(store), stored.whole, file.parent.name)
    finally:
        file.write_bytes(before)
        for shard in (stored.path / "index").glob("*.json"):
            shard.unlink()
        store.runs()  # makes the index again


@SETTINGS
@given(data=st.data())
def test_show_ends_with_an_answer_or_an_error(stored: Stored, data: st.DataObject) -> None:
    file = stored.names[data.draw(st.sampled_from([kind for kind in KINDS if kind.startswith(("trial", "failed"))]))]
    before = file.read_bytes()
    try:
        file.write_text(json.dumps(changed(json.loads(before), data, JSON)))
        assert main(["show", file.parent.name, "--store", str(stored.path)]) in (0, 2)
    finally:
        file.write_bytes(before)


@pytest.fixture(scope="module")
def mirrored(stored: Stored, mongod: str) -> Iterator[Database[dict[str, Any]]]:
    with pymongo.MongoClient[dict[str, Any]](mongod) as client:
        database = client["any_document"]
        for name in DirectoryStore(stored.path).ids():
            project(stored.path / name, database)
        assert Claims(MongoRecords(database)).acquire(KEY) is not None
        yield database
        client.drop_database(database.name)


@pytest.mark.parametrize("collection", ["runs", "harness_claims"])
@SETTINGS
@given(data=st.data())
def test_any_value_in_any_field_of_a_document(
    stored: Stored, mirrored: Database[dict[str, Any]], collection: str, data: st.DataObject
) -> None:
    documents = sorted(mirrored[collection].find(), key=lambda one: str(one["_id"]))
    before = data.draw(st.sampled_from(documents))
    about = {key: value for key, value in before.items() if key in ("harness", "owner", "schema", "held", "lease")}
    about |= {key: value for key, value in before.items() if key in ("attempt", "token", "renewed", "generation")}
    after = {key: value for key, value in before.items() if key not in about} | changed(about, data, JSON)
    store = MongoStore(mirrored)
    try:
        mirrored[collection].replace_one({"_id": before["_id"]}, after)
        run_id = str(before.get("harness", {}).get("run_id"))
        read_all(store, Claims(MongoRecords(mirrored)), lambda: check_database(store), stored.whole, run_id)
    finally:
        mirrored[collection].replace_one({"_id": before["_id"]}, before, upsert=True)


@SETTINGS
@given(data=st.data())
def test_a_changed_summary_with_a_fitting_checksum_is_found_by_check(
    stored: Stored, mirrored: Database[dict[str, Any]], data: st.DataObject
) -> None:
    (before,) = mirrored["runs"].find({"harness.run_id": stored.names["result"].parent.name})
    own = before["harness"]
    summary = changed(json.loads(own["summary"]), data, JSON | HUGE)
    fields = own | {"summary": json.dumps(summary)}
    store = MongoStore(mirrored)
    try:
        change = {"harness.summary": fields["summary"], "harness.seal": seal(fields)}
        mirrored["runs"].update_one({"_id": before["_id"]}, {"$set": change})
        if counted(store).get(own["run_id"]) != stored.whole[own["run_id"]]:
            assert any(own["run_id"] in one.place for one in check_database(store))
        results.runs(store=store, all=True)
    finally:
        mirrored["runs"].replace_one({"_id": before["_id"]}, before)


@SETTINGS
@given(data=st.data())
def test_any_json_in_any_field_of_a_manifest(stored: Stored, tmp_path_factory: Any, data: st.DataObject) -> None:
    store = DirectoryStore(stored.path)
    target = tmp_path_factory.mktemp("archive") / "runs.tar"
    manifest = export_runs(store, store.runs(), target, study=STUDY, preset=PRESET, missing=["one"])
    document = changed(manifest.document(), data, JSON | HUGE)
    try:
        read = Manifest.read(json.dumps(sealed(document)).encode())
    except HarnessError:
        return
    assert all(isinstance(one, str) for one in (read.study, read.preset, *read.missing))


def test_the_whole_numbers_of_the_database_are_whole_numbers() -> None:
    state = {"run_id": "0123456789abcdef-1-00000000", "revision": Int64(2**62), "added": []}
    assert problem(schema.MirroredState, state) is None and problem(list[int], [Int64(1)]) is None
    assert problem(schema.MirroredState, {**state, "revision": True}) == "revision: expected `int`, got `bool`"
