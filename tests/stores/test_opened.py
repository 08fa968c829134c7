"""Directory and database, opened together, for every way of naming them: with a real server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from harness.errors import Unreachable, UserError
from harness.stores.directory.store import DirectoryStore
from harness.stores.merged import MergedStore
from harness.stores.mongo.mirror import Mirror
from harness.stores.mongo.store import MongoStore
from harness.stores.opened import Opened
from harness.stores.places import Places

NOBODY = "mongodb://127.0.0.1:9/nas"
"""No server answers there."""


def test_a_directory_alone_needs_no_database(tmp_path: Path) -> None:
    opened = Opened(Places(tmp_path), lease=7.0)
    assert opened.reader is opened.directory is opened.here and opened.there is None and not opened.has_database
    assert opened.claims.lease == 7.0 and list(opened.claims_by_place) == [str(tmp_path / "claims")]
    opened.leave_out_silent()
    assert opened.silent is None
    with pytest.raises(UserError, match="there is no database: name one with --mongo"):
        opened.database  # noqa: B018


def test_both_are_read_and_the_database_has_claims(tmp_path: Path, mongod: str, mongo_database: Database[Any]) -> None:
    opened = Opened(Places(tmp_path, mongod.replace("/?", f"/{mongo_database.name}?")))
    assert isinstance(opened.reader, MergedStore) and opened.reader is opened.reader
    held = opened.claims.acquire("key")
    assert held is not None
    assert [claims.holder("key") is not None for claims in opened.claims_by_place.values()] == [False, True]


def test_a_database_named_alone_leaves_the_directory_alone(
    tmp_path: Path, mongod: str, mongo_database: Database[Any]
) -> None:
    address = mongod.replace("/?", f"/{mongo_database.name}?")
    opened = Opened(Places(tmp_path / "runs", address, reads_mongo=True, database_only=True))
    assert isinstance(opened.reader, MongoStore) and opened.here is None
    assert list(opened.claims_by_place) == [f"claims in {opened.reader.name}"]
    assert isinstance(Places(tmp_path / "runs", address, reads_mongo=True).open(), MongoStore)
    assert not (tmp_path / "runs").exists()


def test_a_silent_database_is_an_error_or_left_out(tmp_path: Path) -> None:
    opened = Opened(Places(tmp_path, NOBODY), patience=0.1)  # nothing is touched before it is used
    with pytest.raises(Unreachable):
        opened.reader  # noqa: B018
    opened.leave_out_silent()
    assert opened.silent and isinstance(opened.reader, DirectoryStore) and opened.there is None
    alone = Opened(Places(tmp_path, NOBODY, database_only=True), patience=0.1)
    with pytest.raises(Unreachable):
        alone.leave_out_silent()


def test_only_a_run_with_a_database_is_mirrored(tmp_path: Path) -> None:
    from harness.stores.directory.run_directory import RunDirectory

    run = RunDirectory(tmp_path / "run")
    assert Opened(Places(tmp_path)).mirror(run) is None
    mirror = Opened(Places(tmp_path, NOBODY), weights_max=5).mirror(run)
    assert isinstance(mirror, Mirror)
    mirror.close()
