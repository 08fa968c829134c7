"""Makes references in a training process: a document for each, in the folder, for the worker to store.

A reference is deterministic: two processes that make the same one store the same document, so it needs no claim.
"""

from __future__ import annotations

from typing import Any

import torch

from harness.components.proxy import NotApplicable
from harness.files import write_json
from harness.schema import UNRANKED
from harness.training.precision import fix_arithmetic
from harness.training.trial import run_references
from harness.work.jobs import Answered, failed
from harness.work.task import Task


def make_references(task: Task) -> dict[str, Any]:
    """Make the references of one trial that its assignment names; return the answer."""
    # One thread: the sums, and so the predictions, do not depend on the number of cores.
    torch.set_num_threads(1)
    fix_arithmetic()

    def report(done: int, total: int) -> None:
        task.progress({"event": "references", "step": done, "steps": total})

    try:
        made_here = run_references(task.trial.config, task.assignment.references, task.device, report)
        for number, (name, outcome) in enumerate(made_here):
            made: dict[str, Any] = {"reference": name, "cell": task.trial.json()}
            if isinstance(outcome, NotApplicable):
                made |= {"result": UNRANKED, "inapplicable": str(outcome)}
            else:
                made |= {"result": outcome.result, "cost": outcome.cost}
            write_json(task.folder / f"{number}.json", made)
            task.progress({"event": name})
    except (Exception, SystemExit) as error:
        return failed(error)
    return {"status": Answered.DONE}
