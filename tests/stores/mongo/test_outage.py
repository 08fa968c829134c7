"""A server that is not there, goes away, stands still, comes back or refuses: nothing is lost, and nobody waits."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest
from pymongo.database import Database

from harness.errors import DataError, Unreachable, UserError
from harness.stores.directory.observer import DirectoryObserver
from harness.stores.directory.run_directory import WEIGHTS, RunDirectory
from harness.stores.directory.store import DirectoryStore
from harness.stores.mongo import mirror as mirroring
from harness.stores.mongo.connection import NOT_SHOWN, address, connect, hide, shown
from harness.stores.mongo.mirror import Mirror
from harness.stores.mongo.projection import project
from harness.stores.mongo.store import MongoStore
from harness.stores.mongo.sync import sync, unsynced
from tests.long.campaign.servers import changing, listening
from tests.mongod import Mongod, free_port
from tests.processes import await_that
from tests.stores.conftest import NUMBERS, RESULT, finish, trial

Make = Callable[..., Path]
Mongo = Database[dict[str, Any]]

PASSWORD = "s3:cr/et@ ß%"
ENCODED = "s3%3Acr%2Fet%40%20%C3%9F%25"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Mongod]:
    """A server to be killed."""
    one = Mongod(tmp_path / "server")
    one.start()
    yield one
    one.kill()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mirrors that look as often as they are told to, and give up soon."""
    for name, value in (("SHARE", 1.0), ("SELECTION", 1.0), ("KNOWN_SILENT", 0.2)):
        monkeypatch.setattr(mirroring, name, value)


def test_a_server_whose_replies_are_damaged_does_not_answer_as_a_database_does(mongod: str) -> None:
    port = pymongo.uri_parser.parse_uri(mongod)["nodelist"][0][1]
    damaged = changing(port, lambda reply: reply.replace(b"\x03cursor", b"\x90cursor"))  # no type has this number
    with listening(damaged) as other, pytest.raises(Unreachable, match="does not answer as a database does"):
        connect(mongod.replace(str(port), str(other)), timeout=60)


def test_an_answer_that_lacks_a_part_is_told_in_a_line(mongod: str) -> None:
    port = pymongo.uri_parser.parse_uri(mongod)["nodelist"][0][1]
    calls: list[bytes] = []

    def change(reply: bytes) -> bytes:
        calls.append(reply)
        return reply.replace(b"firstBatch", b"firstBetch") if any(b"cursor" in one for one in calls[:-1]) else reply

    with listening(changing(port, change)) as other:
        database = connect(mongod.replace(str(port), str(other)), timeout=60)
        with pytest.raises(DataError, match="the database does not answer as a database does: KeyError: 'firstBatch'"):
            MongoStore(database).runs()
        database.client.close()


def test_a_reply_without_what_was_asked_for_holds_no_run(mongod: str, tmp_path: Path) -> None:
    port = pymongo.uri_parser.parse_uri(mongod)["nodelist"][0][1]
    with listening(changing(port, lambda reply: reply.replace(b"\x03harness", b"\x03harmess"))) as other:
        database = connect(mongod.replace(str(port), str(other)).replace("/?", "/changed?"), timeout=60)
        database["runs"].insert_one({"_id": 1, "harness": {"run_id": "x", "revision": 1}})
        store = MongoStore(database)
        assert store.ids() == [] and store.runs() == [] and unsynced(DirectoryStore(tmp_path), database) == []
        [problem] = store.problems
        assert problem.reason == "holds no run of the harness"
        database.client.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mongod]:
    """A server with users: one who may everything in `nas`, and one who may only read there."""
    one = Mongod(tmp_path_factory.mktemp("guarded"), "--auth")
    one.start()
    with pymongo.MongoClient[dict[str, Any]](one.uri) as client:  # the first user may be made from this machine
        everything = [{"role": "root", "db": "admin"}]
        client["admin"].command("createUser", "root", pwd=PASSWORD, roles=everything)
    with pymongo.MongoClient[dict[str, Any]](one.uri, username="root", password=PASSWORD) as client:
        for user, role in (("writer", "readWrite"), ("reader", "read")):
            client["nas"].command("createUser", user, pwd=PASSWORD, roles=[{"role": role, "db": "nas"}])
    yield one
    one.kill()


def of_nas(server: Mongod, user: str, password: str = ENCODED) -> str:
    return f"mongodb://{user}:{password}@127.0.0.1:{server.port}/nas?directConnection=true"


def start(store: DirectoryStore) -> tuple[RunDirectory, DirectoryObserver]:
    directory = store.create(trial(), "tiny", {})
    return directory, DirectoryObserver(directory, trial().config.json(), {})


def test_a_mirror_follows_its_run(store: DirectoryStore, mongod: str, mongo_database: Mongo) -> None:
    uri = mongod.replace("/?", f"/{mongo_database.name}?")
    directory, _ = start(store)
    mirror = Mirror(directory.path, uri, every=0.01)
    runs = mongo_database["runs"]
    await_that(lambda: runs.count_documents({"status": "RUNNING", "harness.revision": {"$gt": 0}}) == 1)
    directory.log_metric("train_loss", 7, 0.5)
    mirror.wake()
    await_that(lambda: mongo_database["metrics"].count_documents({"steps": 7}) == 1)
    (directory.path / "metrics.jsonl").unlink()
    finish(directory, trial(), RESULT)
    assert mirror.close() and mirror.error is None
    assert MongoStore(mongo_database).runs() == store.runs() and unsynced(store, mongo_database) == []
    assert mirror.close()


def test_a_run_without_a_server_goes_on(store: DirectoryStore, caplog: pytest.LogCaptureFixture) -> None:
    uri = f"mongodb://user:{ENCODED}@127.0.0.1:{free_port()}/nas"
    directory, observer = start(store)
    with caplog.at_level(logging.WARNING):
        mirror = Mirror(directory.path, uri, every=0.01)
        mirror.wake()
        finish(directory, trial(), RESULT)
        mirror.wake()
        began = time.monotonic()
        assert not mirror.close(wait=5.0)
        assert time.monotonic() - began < 60
    assert mirror.error is not None and "does not answer" in mirror.error and "refused" in mirror.error
    assert mirror.error.count("\n") == 0 and len(caplog.records) == 1
    assert not any(secret in mirror.error + caplog.text for secret in (PASSWORD, ENCODED))
    assert [run.status for run in store.runs()] == ["done"]


def test_a_server_that_stands_still_holds_nobody_up(store: DirectoryStore, server: Mongod) -> None:
    directory, _ = start(store)
    mirror = Mirror(directory.path, server.uri, every=0.01)
    with pymongo.MongoClient[dict[str, Any]](server.uri) as client:
        await_that(lambda: client["nas"]["runs"].count_documents({"harness.revision": {"$gt": 0}}) == 1)
        os.kill(server.pid, signal.SIGSTOP)
        try:
            finish(directory, trial(), RESULT)
            began = time.monotonic()
            assert not mirror.close(wait=1.0)
            assert time.monotonic() - began < 60
            with pytest.raises(Unreachable):
                connect(server.uri, timeout=0.5)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        sync(store, client["nas"])
        assert MongoStore(client["nas"]).runs() == store.runs()


@pytest.mark.parametrize(("megabytes", "kills"), [(8, 1), pytest.param(40, 5, marks=pytest.mark.long)])
def test_a_server_killed_while_it_stores_a_run_has_it_once_in_the_end(
    megabytes: int, kills: int, store: DirectoryStore, server: Mongod
) -> None:
    directory = store.create(trial(), "tiny", {})
    finish(directory, trial(), RESULT)
    directory.write_weights(lambda file: file.write(os.urandom(megabytes << 20)))
    (directory.path / "completion.json").unlink()
    directory.complete()
    for _ in range(kills):
        database = connect(server.uri, timeout=1.0)
        chunks = database["fs.chunks"]
        before = chunks.estimated_document_count()
        with ThreadPoolExecutor() as pool:
            projection = pool.submit(project, directory.path, database)
            while chunks.estimated_document_count() == before and not projection.done():
                pass
            server.kill()
            assert projection.exception() is None or isinstance(projection.exception(), Unreachable)
        database.client.close()
        server.start()
    database = connect(server.uri)
    sync(store, database)
    assert MongoStore(database).runs() == store.runs()
    run = store.runs()[0]
    assert MongoStore(database).read(run, WEIGHTS) == store.read(run, WEIGHTS)
    counts = {name: database[name].count_documents({}) for name in ("runs", "metrics", "fs.files")}
    assert counts == {"runs": 1, "metrics": 1 + len(NUMBERS), "fs.files": 2}
    assert database["fs.chunks"].count_documents({}) == 1 + -(-(megabytes << 20) // (255 << 10))
    database.client.close()


def test_a_mirror_goes_on_when_the_server_is_back(store: DirectoryStore, server: Mongod) -> None:
    directory, _ = start(store)
    mirror = Mirror(directory.path, f"{server.uri}&serverSelectionTimeoutMS=200", every=0.01)
    with pymongo.MongoClient[dict[str, Any]](server.uri) as client:
        runs = client["nas"]["runs"]
        await_that(lambda: runs.count_documents({"harness.revision": {"$gt": 0}}) == 1)
        server.kill()
        directory.log_metric("train_loss", 7, 0.5)
        mirror.wake()
        await_that(lambda: mirror.error is not None)
        server.start()
        (directory.path / "metrics.jsonl").unlink()
        finish(directory, trial(), RESULT)
        assert mirror.close() and mirror.error is None
        assert MongoStore(client["nas"]).runs() == store.runs()


def test_wrong_credentials_are_one_line_without_the_password(guarded: Mongod) -> None:
    began = time.monotonic()
    wrong = "wr0ng%21"
    for uri, reason in (
        (of_nas(guarded, "writer", wrong), "authentication failed"),
        (of_nas(guarded, "nobody"), "authentication failed"),
        (f"mongodb://127.0.0.1:{guarded.port}/nas", "permission denied"),
        (of_nas(guarded, "writer").replace("/nas?", "/other?authSource=nas&"), "permission denied"),
    ):
        with pytest.raises(UserError) as caught:
            connect(uri)
        message = str(caught.value)
        assert reason in message and "\n" not in message and str(guarded.port) in message
        assert not any(secret in message for secret in (PASSWORD, ENCODED, wrong, "wr0ng!"))
        assert caught.value.__cause__ is None and caught.value.__context__ is None
    assert time.monotonic() - began < 60


def test_the_password_is_nowhere(
    guarded: Mongod, store: DirectoryStore, make_run: Make, caplog: pytest.LogCaptureFixture
) -> None:
    uri = of_nas(guarded, "writer")
    with caplog.at_level(logging.DEBUG):
        path = make_run()
        assert Mirror(path, uri).close()
        database = connect(uri)
        place = MongoStore(database)
        place.remember("a key", {})
        place.invalidate(path.name, "a reason")
        sync(store, database)
    assert place.name == address(database) == f"mongodb://writer@127.0.0.1:{guarded.port}/nas"
    documents = [bson.encode(one) for name in database.list_collection_names() for one in database[name].find()]
    files = [file.read_bytes() for file in store.path.rglob("*") if file.is_file()]
    logs = [caplog.text.encode(), (guarded.folder / "mongod.log").read_bytes(), repr(place).encode()]
    assert len(documents) > 5 and len(files) > 5
    for text in (*documents, *files, *logs):
        assert PASSWORD.encode() not in text and ENCODED.encode() not in text
    database.client.close()


def test_who_may_not_write_is_told(guarded: Mongod, make_run: Make) -> None:
    path = make_run()
    with pytest.raises(UserError, match="permission denied"):
        project(path, connect(of_nas(guarded, "reader")))
    mirror = Mirror(path, of_nas(guarded, "reader"))
    assert not mirror.close() and mirror.error is not None and "permission denied" in mirror.error
    reader = MongoStore(connect(of_nas(guarded, "reader")))
    reader.remember("another key", {})  # keeps nothing, and that is all
    assert reader.recall("another key") is None


def test_who_may_not_create_indexes_mirrors_where_they_exist(guarded: Mongod, make_run: Make) -> None:
    data, first = ["find", "insert", "update", "remove"], ["runs", "metrics", "fs.files", "fs.chunks"]
    further = ["harness_claims", "harness_references", "harness_board"]

    def rights(collection: str) -> dict[str, Any]:
        actions = [*data, "listIndexes"] if collection in first else data
        return {"resource": {"db": "indexed", "collection": collection}, "actions": actions}

    path = make_run()
    with pymongo.MongoClient[dict[str, Any]](guarded.uri, username="root", password=PASSWORD) as client:
        own = client["indexed"]
        own.command("createRole", "mirroring", privileges=[rights(name) for name in first + further], roles=[])
        own.command("createUser", "least", pwd=PASSWORD, roles=["mirroring"])
        own.command("createUser", "most", pwd=PASSWORD, roles=["readWrite"])
        least = connect(of_nas(guarded, "least").replace("/nas?", "/indexed?"))
        with pytest.raises(UserError, match="no right to createIndex on runs, which lacks harness.cell16_1"):
            project(path, least)
        project(make_run(), connect(of_nas(guarded, "most").replace("/nas?", "/indexed?")))
        assert project(path, least) == 2
        assert path.name in MongoStore(least).ids()
        own.command("revokePrivilegesFromRole", "mirroring", privileges=[rights("runs") | {"actions": ["insert"]}])
        with pytest.raises(UserError, match='permission denied: not authorized on indexed to execute insert: "runs"'):
            project(make_run(), least)
        client.drop_database("indexed")


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://",
        "mongodb://user:pass:s3cret@host/nas",
        "mongodb://user:p@s3cret@host/nas",
        "mongodb://user:p/s3cret@host/nas",
        "mongodb://user:p?s3cret@host/nas",
        "mongodb://user:%s3cret@host/nas",
        "mongodb://host:s3cret/nas",
        "mongodb://user:s3cret@host:port/nas",
        "mongodb://user:s3cret@host/nas?tls=perhaps",
        "mongodb://user:s3cret@host/n s$",
        "mongodb://user:s3cret@host/?tls=true&tlsCAFile=/no/such/file",
        "mongodb+srv://user:s3cret@host.invalid/nas",
    ],
)
def test_an_address_that_is_none(uri: str) -> None:
    with pytest.raises(UserError) as caught:
        connect(uri, timeout=1.0)
    assert "\n" not in str(caught.value) and ("s3cret" not in str(caught.value) or uri == "mongodb://host:s3cret/nas")
    assert not isinstance(caught.value, DataError)


def test_addresses_are_shown_without_secrets() -> None:
    assert shown(f"mongodb://user:{ENCODED}@a:1,b:2/nas?replicaSet=x") == "mongodb://user@a:1,b:2/nas"
    assert shown("mongodb+srv://user@host") == "mongodb+srv://user@host"
    assert shown("mongodb://host") == "mongodb://host" and shown("mongodb://u:a/b@c/d") == "mongodb://…"
    uri = f"mongodb://user:{ENCODED}@host/nas?tlsCertificateKeyFilePassword=0ther"
    assert hide(f"at {uri}: it refuses", uri) == "at mongodb://user@host/nas: it refuses"
    for secret in (PASSWORD, ENCODED, "0ther", "s3%3Acr/et%40%20%C3%9F%25"):
        assert hide(f"it refuses {secret}, whatever it is", uri) == NOT_SHOWN


@pytest.mark.parametrize("scheme", ["mongodb", "mongodb+srv"])
@pytest.mark.parametrize("password", ["p@ss", "p@ss/word", "a:b", "a/b", "a?b", "e@", "?"])
def test_a_password_that_is_not_encoded_cannot_be_read_from_the_message(scheme: str, password: str) -> None:
    """Neither from what is shown, nor from what is missing in a sentence that everybody knows."""
    advice = "user and password must be percent-encoded (%40 for @, %3A for :, %2F for /, %3F for ?)"
    with pytest.raises(UserError) as caught:
        connect(f"{scheme}://user:{password}@host/nas", timeout=1.0)
    assert str(caught.value) == f"{scheme}://… is not a database address: {advice}"


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("mongodb://", "mongodb://… is not a database address: it names no host"),
        ("mongodb:///nas", "mongodb://… is not a database address: it names no host"),
        ("mongodb://a/b/c", "mongodb://… is not a database address: only /DATABASE and ?OPTIONS can follow"),
        ("mongodb://user:e@host:port/nas", f"mongodb://user@host:port/nas is not a database address: {NOT_SHOWN}"),
        ("mongodb://user:s3cret@host/?tls=perhaps", "mongodb://user@host/ is not a database address: The value of"),
    ],
)
def test_what_is_wrong_with_an_address_is_said(uri: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        connect(uri, timeout=1.0)
    assert str(caught.value).startswith(message) and "***" not in str(caught.value)
