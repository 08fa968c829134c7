"""The contract of records as tests: derive a class from `RecordsSuite` in a test file, with a fixture `records`.

`records` is an empty place of records (`harness.stores.records.Records`). Every test uses its own kind, so one place
serves all of them.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from harness.stores.records import Record, Records

SECOND = 1.0
SLOW = 30.0
"""Seconds that a busy machine may take for a few operations."""


class RecordsSuite:
    """Every place of records passes these tests."""

    def test_a_record_that_was_put_is_read(self, records: Records) -> None:
        assert records.get("read", "a") is None and records.list("read") == []
        value = {"text": "τ", "number": 2, "share": 0.5, "nothing": None, "list": [1, "x"], "inner": {"a": True}}
        new = _put(records, "read", "a", value)
        found = records.get("read", "a")
        assert found is not None and found.damage is None
        assert (found.key, found.version, dict(found.value)) == ("a", new.version, value)
        assert type(found.value["number"]) is int and type(found.value["share"]) is float
        assert records.get("other kind", "a") is None

    def test_only_the_record_that_was_read_is_replaced(self, records: Records) -> None:
        first = _put(records, "replaced", "a", {"n": 1})
        assert records.put("replaced", "a", {"n": 9}, None) is None
        second = _put(records, "replaced", "a", {"n": 2}, first)
        assert second.version > first.version
        assert records.put("replaced", "a", {"n": 9}, first) is None
        third = _put(records, "replaced", "a", {"n": 2}, second)  # the same value again
        assert third.version > second.version
        assert records.put("replaced", "a", {"n": 9}, second) is None
        assert [dict(one.value) for one in records.list("replaced")] == [{"n": 2}]

    def test_one_of_many_replaces_a_record(self, records: Records) -> None:
        last: Record | None = None
        for turn in range(5):
            values = [{"by": number, "turn": turn} for number in range(8)]
            with ThreadPoolExecutor(8) as threads:
                tried = list(threads.map(partial(records.put, "raced", "a", last=last), values))
            [last] = [one for one in tried if one is not None]
            [found] = records.list("raced")
            assert (found.version, dict(found.value)) == (last.version, dict(last.value))

    def test_ages_count_from_the_last_change_or_touch(self, records: Records) -> None:
        record = _put(records, "touched", "a", {"n": 1})
        younger = _age(records, "touched")
        assert 0 <= younger < SLOW
        time.sleep(SECOND)
        older = _age(records, "touched")
        assert older >= younger + SECOND / 2
        assert records.touch("touched", record) and _age(records, "touched") < older
        assert records.touch("touched", record, expire=True)
        assert _age(records, "touched") > SLOW
        assert dict(records.list("touched")[0].value) == {"n": 1}

    def test_a_record_that_was_changed_is_not_touched(self, records: Records) -> None:
        first = _put(records, "changed", "a", {"n": 1})
        second = _put(records, "changed", "a", {"n": 1}, first)
        assert not records.touch("changed", first) and records.touch("changed", second)
        assert not records.delete("changed", first) and records.delete("changed", second)
        assert not records.touch("changed", second) and not records.delete("changed", second)
        assert records.put("changed", "a", {"n": 2}, second) is None and records.get("changed", "a") is None

    def test_a_deleted_record_can_be_made_again(self, records: Records) -> None:
        first = _put(records, "again", "a", {"n": 1})
        assert records.delete("again", first)
        second = _put(records, "again", "a", {"n": 2})
        assert not records.touch("again", first) and records.touch("again", second)

    def test_records_are_listed_by_key(self, records: Records) -> None:
        for key in ("b", "c", "a"):
            _put(records, "listed", key, {"of": key})
        assert [(one.key, one.value["of"]) for one in records.list("listed")] == [("a", "a"), ("b", "b"), ("c", "c")]
        assert [one.key for one in records.list("listed", {"c", "a", "missing"})] == ["a", "c"]


def _put(records: Records, kind: str, key: str, value: dict[str, Any], last: Record | None = None) -> Record:
    new = records.put(kind, key, value, last)
    assert new is not None
    return new


def _age(records: Records, kind: str) -> float:
    [record] = records.list(kind)
    return record.age
