"""Records in a directory and in MongoDB: one contract (`harness.testing.records`), and disks that fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from harness.errors import Unreachable, UserError
from harness.stores.directory.records import DirectoryRecords
from harness.stores.mongo.records import MongoRecords
from harness.testing.records import RecordsSuite

KIND = "notes"


class TestDirectory(RecordsSuite):
    @pytest.fixture
    def records(self, tmp_path: Path) -> DirectoryRecords:
        return DirectoryRecords(tmp_path)


class TestMongo(RecordsSuite):
    @pytest.fixture
    def records(self, mongo_database: Database[dict[str, Any]]) -> MongoRecords:
        return MongoRecords(mongo_database)


@pytest.mark.parametrize("error", [errno.EIO, errno.ESTALE, errno.EACCES])
@pytest.mark.parametrize("call", ["open", "link", "utime", "listdir"])
def test_a_disk_that_fails_is_unreachable_and_nothing_is_damaged(
    call: str, error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = DirectoryRecords(tmp_path)
    first = records.put(KIND, "a", {"n": 1}, None)
    assert first is not None

    def fail(*arguments: object, **more: object) -> None:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        uses: dict[str, Callable[[], object]] = {
            "open": lambda: records.get(KIND, "a"),
            "link": lambda: records.put(KIND, "a", {"n": 2}, first),
            "utime": lambda: records.touch(KIND, first),
            "listdir": lambda: records.list(KIND),
        }
        with pytest.raises(Unreachable, match=os.strerror(error)):
            uses[call]()
    assert records.put(KIND, "a", {"n": 2}, first) is not None
    assert [dict(one.value) for one in records.list(KIND)] == [{"n": 2}]


def test_on_a_full_disk_a_record_is_confirmed_and_expired_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = DirectoryRecords(tmp_path)
    first = records.put(KIND, "a", {"n": 1}, None)
    assert first is not None
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", _full)
        with pytest.raises(UserError, match="No space left"):
            records.put(KIND, "a", {"n": 2}, first)
        second = records.put(KIND, "a", {"n": 1}, first)
        assert second is not None and second.version == 2
        assert records.touch(KIND, second, expire=True)
    [record] = records.list(KIND)
    assert record.age > 1e9 and os.listdir(tmp_path / KIND / "a") == ["2"]


def _full(descriptor: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
