"""Tampered documents of the database: summaries, Sacred's fields, files, curves, claims and references."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymongo
from bson.errors import InvalidDocument
from pymongo.database import Database
from pymongo.errors import PyMongoError

from harness.stores.claims import Claims
from harness.stores.mongo.records import MongoRecords
from tests.long.campaign.commands import attempt
from tests.long.campaign.damage import flip, get, places_in, spoilt, with_value
from tests.long.campaign.scene import DATABASE, TINY, Scene, query, report
from tests.long.campaign.tally import Tally

SUMMARIES, DOCUMENTS = 40, 60
Document = dict[str, Any]


@contextmanager
def tampered(database: Database[Document], collection: str, document: Document, changed: Document) -> Iterator[bool]:
    """Within, the changed document stands in the database; whether it could be stored."""
    own = database[collection]
    stored = isinstance(changed, dict) and changed.get("_id", document["_id"]) == document["_id"]
    try:
        if stored:
            own.replace_one({"_id": document["_id"]}, changed, upsert=True)
    except (InvalidDocument, OverflowError, UnicodeEncodeError, PyMongoError):
        stored = False
    try:
        yield stored
    finally:
        own.replace_one({"_id": document["_id"]}, document, upsert=True)


def _summary(document: Document, rng: random.Random) -> tuple[str, Document]:
    """Another value in the summary, whose text stays whole JSON."""
    own = document["harness"]
    what, changed = spoilt(json.loads(own["summary"]), rng)
    return f"summary: {what}", {**document, "harness": {**own, "summary": json.dumps(changed)}}


def _better(document: Document, rng: random.Random) -> tuple[str, Document]:
    """A better result, everywhere in the summary."""
    own = document["harness"]
    summary = json.loads(own["summary"])
    for path in list(places_in(summary)):
        if path[-1] == "kendall_tau":
            summary = with_value(summary, path, 0.99)
    return "summary: kendall_tau is 0.99 everywhere", {
        **document,
        "harness": {**own, "summary": json.dumps(summary)},
    }


def _status(document: Document, rng: random.Random) -> tuple[str, Document]:
    """An unfinished or failed run that says it is done, with a result of its own making."""
    own = document["harness"]
    summary = json.loads(own["summary"])
    summary |= {"recorded": "done", "result": {"kendall_tau": 0.99, "observed": {}}, "cost": {}}
    summary |= {"rankings": {summary.get("ranking") or "x": {"kendall_tau": 0.99}}}
    return "summary: says done", {**document, "harness": {**own, "summary": json.dumps(summary)}}


def _flipped(document: Document, rng: random.Random) -> tuple[str, Document]:
    """A bit of a long text or of binary content."""
    texts = [path for path in places_in(document) if isinstance(get(document, path), str | bytes) and path != ("_id",)]
    path = rng.choice([path for path in texts if get(document, path)])
    old = get(document, path)
    new = flip(old, rng) if isinstance(old, bytes) else flip(old.encode(), rng).decode(errors="replace")
    return f"{'.'.join(map(str, path))}: a bit flipped", with_value(document, path, new)


def tampering(scene: Scene, rng: random.Random, database: Database[Document], tries: int) -> Tally:
    """The summaries, which every reader believes."""
    tally = Tally("tampered summaries in the database")
    runs = list(database["runs"].find())
    for number in range(tries):
        document = rng.choice(runs)
        change = rng.choice([_summary, _summary, _summary, _better, _status])
        what, changed = change(document, rng)
        run = document["harness"]["run_id"]
        with tally.attempt(f"{number}: {run}: {what}") as one, tampered(database, "runs", document, changed) as stored:
            if stored:
                shown = attempt(one, *query(scene.uri), within=30)
                checked = attempt(one, "store", "check", "--store", scene.uri, codes=(0, 1), within=30)
                scene.judge(one, shown, checked)
                before, after = (json.loads(one["harness"]["summary"]) for one in (document, changed))
                if before != after:
                    named = checked.code == 1 and run in checked.text
                    one.require(named, "other", "`store check` of the database does not name it")
                scene.judge_report(one, attempt(one, *report(scene.uri), within=30))
    return tally


def anything(scene: Scene, rng: random.Random, database: Database[Document], tries: int) -> Tally:
    """Any field of any document of any collection."""
    tally = Tally("tampered documents of the database")
    collections = sorted(set(database.list_collection_names()) - {"system.views"})
    held = {name: list(database[name].find()) for name in collections}
    names = [name for name in collections if held[name]]
    mirror = ("--store", str(scene.store), "--mongo", scene.uri)
    for number in range(tries):
        name = rng.choice(names)
        document = rng.choice(held[name])
        change = rng.choice([lambda one, rng: spoilt(one, rng), _flipped])
        what, changed = change(document, rng)
        with tally.attempt(f"{number}: {name}: {what}") as one, tampered(database, name, document, changed) as stored:
            if not stored:
                continue
            shown = attempt(one, *query(scene.uri), within=30)
            checked = attempt(one, "store", "check", *rng.choice([("--store", scene.uri), mirror]), codes=(0, 1))
            others = [checked]
            if shown.code == 0 and {row["run_id"] for row in json.loads(shown.out)} != scene.rows.keys():
                # A document that says it has no content is as one that was never mirrored: the directory knows better.
                others.append(attempt(one, "store", "check", *mirror, codes=(0, 1)))
            scene.judge(one, shown, *others)
            run = document.get("harness", {}).get("run_id") if name == "runs" else None
            more = [
                ("status", "attacked", "unfinished", *TINY, "--store", scene.uri),
                ("plan", "unfinished", *TINY, "--store", scene.uri),
                ("show", run or scene.unfinished, "--store", scene.uri),
                ("store", "sync", *mirror),
                (*query(scene.uri), "--all"),
            ]
            attempt(one, *rng.choice(more), within=30)
    return tally


def run(scene: Scene, rng: random.Random) -> list[Tally]:
    with pymongo.MongoClient[Document](scene.server.uri) as client:
        database = client[DATABASE]
        key = scene.unfinished.partition("-")[0] + "0" * 48
        Claims(MongoRecords(database), lease=60).acquire(key)
        try:
            return [tampering(scene, rng, database, SUMMARIES), anything(scene, rng, database, DOCUMENTS)]
        finally:
            database["harness_claims"].delete_many({"_id": key})
