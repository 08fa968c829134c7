"""What a child is to do crosses a process boundary in a folder, as plain JSON, and is the same on the other side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.data import devices
from harness.errors import DataError
from harness.study.trial import Trial
from harness.work.assignment import Assignment, Computing
from harness.work.states import Kind
from harness.work.task import Task
from tests.toy import toy_config


def test_an_assignment_is_the_same_after_the_crossing(toy_project: Path, tmp_path: Path) -> None:
    plain = Assignment(Kind.TRAIN, Trial(toy_config()), Computing(threads=2), "tiny")
    full = Assignment(
        Kind.RANK,
        Trial(toy_config(seed=5), given="abc"),
        Computing(1, "cuda", 2, 0.5, True, 9.0),
        "demo",
        checkpoints=Path("/elsewhere"),
        start={"top1": [1, 2]},
        run="0123456789abcdef-1-01234567",
        again=True,
        profile=Path("/store/profiles/x"),
        references=("flops",),
    )
    for assignment in (plain, full):
        assignment.write(tmp_path)
        assert Assignment.read(tmp_path) == assignment


def test_a_checkpoint_of_another_model_of_gpu_is_not_used(
    toy_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its arithmetic rounds otherwise, so the bytes would be those of neither."""
    assignment = Assignment(Kind.TRAIN, Trial(toy_config()))
    lines: list[str] = []
    for model, used in (("A100", False), ("A100", True), ("H100", False)):
        monkeypatch.setattr(devices, "with_model", lambda device, model=model: f"cuda ({model})")
        checkpoint = Task(assignment, tmp_path, lambda report: None).checkpoint()
        checkpoint.tell = lines.append
        assert (checkpoint.load() is not None) is used
        if model == "A100":
            checkpoint.save({"step": 1})
    assert len(lines) == 1 and lines[0].endswith("device was cuda (A100), now it is cuda (H100)")


def test_what_no_child_can_do_is_refused(toy_project: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is missing"):
        Assignment.read(tmp_path)
    document = Assignment(Kind.TRAIN, Trial(toy_config())).json()
    for wrong, reason in (({"kind": "guess"}, "'guess' is not a valid Kind"), ({"colour": "red"}, "colour")):
        (tmp_path / "inputs").mkdir(exist_ok=True)
        (tmp_path / "inputs" / "assignment.json").write_text(json.dumps(document | wrong))
        with pytest.raises(DataError, match=reason):
            Assignment.read(tmp_path)
