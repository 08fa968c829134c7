"""What a job is told crosses a process boundary as plain JSON, and is the same on the other side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.data import devices
from harness.study.trial import Trial
from harness.work.assignment import Assignment
from harness.work.states import Kind
from harness.work.task import Task
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


def test_a_checkpoint_of_another_model_of_gpu_is_not_used(
    toy_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its arithmetic rounds otherwise, so the bytes would be those of neither."""
    assignment = Assignment(Kind.TRAIN, Trial(toy_config()), tmp_path / "runs", "tiny", {}, threads=1)
    lines: list[str] = []
    for model, used in (("A100", False), ("A100", True), ("H100", False)):
        monkeypatch.setattr(devices, "with_model", lambda device, model=model: f"cuda ({model})")
        checkpoint = Task(assignment, lambda report: None).checkpoint()
        checkpoint.tell = lines.append
        assert (checkpoint.load() is not None) is used
        if model == "A100":
            checkpoint.save({"step": 1})
    assert len(lines) == 1 and lines[0].endswith("device was cuda (A100), now it is cuda (H100)")


def test_what_no_job_can_do_is_refused(toy_project: Path) -> None:
    document = Assignment(Kind.TRAIN, Trial(toy_config()), Path("runs"), "tiny", {}, threads=1).json()
    with pytest.raises(ValueError, match="'guess' is not a valid Kind"):
        Assignment.from_json(document | {"kind": "guess"})
    with pytest.raises(TypeError, match="colour"):
        Assignment.from_json(document | {"colour": "red"})
