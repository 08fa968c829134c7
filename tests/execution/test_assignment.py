"""What a job is told crosses a process boundary as plain JSON, and is the same on the other side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.execution.assignment import Assignment
from harness.execution.states import Kind
from harness.study.trial import Trial
from tests.toy import toy_config


def test_an_assignment_is_the_same_after_the_crossing(toy_project: Path) -> None:
    plain = Assignment(Kind.TRAIN, Trial(toy_config()), Path("runs"), "tiny", {"train.epochs": 3}, threads=2)
    full = Assignment(
        Kind.RANK,
        Trial(toy_config(seed=5), given="abc"),
        Path("/store"),
        "demo",
        {},
        threads=1,
        device="cuda",
        mongo="mongodb://somebody:secret@host/nas",
        weights_max=5,
        lease=3.0,
        work=Path("/elsewhere"),
        checkpoint_every=0.5,
        again=True,
        found=(1, 2),
        compile=True,
        profile=True,
        timeout=9.0,
    )
    for assignment in (plain, full):
        text = json.dumps(assignment.json(), allow_nan=False)
        assert Assignment.from_json(json.loads(text)) == assignment
    assert "secret" not in repr(full)
    opened = full.opened()
    assert opened.places.directory == Path("/store") and opened.has_database and opened.weights_max == 5


def test_what_no_job_can_do_is_refused(toy_project: Path) -> None:
    document = Assignment(Kind.TRAIN, Trial(toy_config()), Path("runs"), "tiny", {}, threads=1).json()
    with pytest.raises(ValueError, match="'guess' is not a valid Kind"):
        Assignment.from_json(document | {"kind": "guess"})
    with pytest.raises(TypeError, match="colour"):
        Assignment.from_json(document | {"colour": "red"})
