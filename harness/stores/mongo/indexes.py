"""The indexes of a database that mirrors runs: for uniqueness, and for the queries of the harness."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from pymongo import IndexModel, MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

from harness.errors import UserError

Document = dict[str, Any]

# Sparse, partial: documents that others made with Sacred must not be constrained by ours.
_OURS = {"harness": {"$exists": True}}
_INDEXES = {
    "runs": [
        IndexModel("harness.run_id", unique=True, sparse=True),
        IndexModel("harness.cell16"),
        IndexModel([("harness.key", 1), ("harness.attempt", 1)]),
        IndexModel([("harness.preset", 1), ("harness.recorded", 1)]),
        IndexModel("start_time"),
    ],
    "metrics": [
        IndexModel([("run_id", 1), ("name", 1)], unique=True, partialFilterExpression=_OURS),
        IndexModel("run_id"),
    ],
    "fs.chunks": [IndexModel([("files_id", 1), ("n", 1)], unique=True)],
    "fs.files": [IndexModel([("filename", 1), ("uploadDate", 1)])],
}

UNAUTHORIZED = 13

_prepared: WeakKeyDictionary[MongoClient[Document], set[str]] = WeakKeyDictionary()


def prepare(database: Database[Document]) -> None:
    """Make the indexes, once per connection. A user without the right to make them needs those that are there.

    Raises `UserError` that names a missing index; other errors are the driver's.
    """
    done = _prepared.setdefault(database.client, set())
    if database.name in done:
        return
    for name, indexes in _INDEXES.items():
        try:
            database[name].create_indexes(indexes)
        except OperationFailure as error:
            if error.code != UNAUTHORIZED:
                raise
            missing = sorted({index.document["name"] for index in indexes} - database[name].index_information().keys())
            if missing:
                raise UserError(
                    f"the database refuses: permission denied: the user has no right to createIndex on {name}, which "
                    f"lacks {', '.join(missing)}: let a user with readWrite mirror a run first"
                ) from None
    done.add(database.name)
