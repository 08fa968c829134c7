"""Makes references in a training process, and stores each as soon as it is made. Imported in training processes only.

A reference is deterministic and takes seconds: two processes that make the same one store the same document, so it
needs no claim. Those that are stored when the process is killed are not made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from harness.components.proxy import NotApplicable
from harness.data import devices
from harness.documents import one_line
from harness.schema import UNRANKED
from harness.stores.directory.store import DirectoryStore
from harness.stores.store import Store
from harness.study.trial import Trial
from harness.training.precision import fix_arithmetic
from harness.training.trial import run_references
from harness.work.jobs import Answered


def make(document: Mapping[str, Any], progress: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Make the references of one trial. The document is made by `harness.work.references`."""
    from harness.work.job import terminable

    try:
        with terminable():
            # One thread: the sums, and so the predictions, do not depend on the number of cores.
            torch.set_num_threads(1)
            fix_arithmetic()
            trial = Trial.from_json(document["trial"])
            places = _places(document)
            device = devices.chosen(document.get("device"))
            keys = document["keys"]

            def report(done: int, total: int) -> None:
                progress({"event": "references", "step": done, "steps": total})

            for name, outcome in run_references(trial.config, list(keys), device, report):
                progress({"event": name})
                made: dict[str, Any] = {"reference": name, "cell": trial.json()}
                if isinstance(outcome, NotApplicable):
                    made |= {"result": UNRANKED, "inapplicable": str(outcome)}
                else:
                    made |= {"result": outcome.result, "cost": outcome.cost}
                for place in places:
                    place.remember(keys[name], made)
    except KeyboardInterrupt:
        return {"status": Answered.INTERRUPTED}
    except (Exception, SystemExit) as error:
        return {"status": Answered.FAILED, "error": one_line(error)}
    return {"status": Answered.DONE}


def _places(document: Mapping[str, Any]) -> list[Store]:
    """The directory, and the database if there is one."""
    places: list[Store] = [DirectoryStore(Path(document["store"]))]
    if document["mongo"] is not None:
        from harness.stores.mongo.connection import connect
        from harness.stores.mongo.store import MongoStore

        places.append(MongoStore(connect(document["mongo"])))
    return places
