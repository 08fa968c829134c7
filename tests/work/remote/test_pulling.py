"""What a task checks before it works, and what is said where an engine is not there: without a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from harness.cli import main
from harness.errors import UserError
from harness.stores.places import Places
from harness.study.catalogue import find_studies
from harness.work.plan import Asked
from harness.work.remote.parcel import digest_of, pack
from harness.work.remote.pulling import Order, identity, pull
from harness.work.remote.ray_crew import RayCrew, Wanted
from harness.work.worker import Settings
from tests.toy import SINGLE_PATH, user_folder

ROOT = Path(__file__).parents[3]
STUDY = """from harness.study import Column, Row, Study
from ._rows import ROWS

rows = [Row({"Method": name}, {"method.name": name}) for name in ROWS]
study = Study("mine", "Mine", rows, [Column("τ", "kendall_tau")])
"""
FILES = {
    "studies/mine.py": STUDY,
    "studies/_rows.py": "ROWS = ['own']\n",
    "methods/own.py": SINGLE_PATH.format(name="own", type="Own"),
    "elsewhere/alone.py": STUDY.replace('"mine"', '"alone"').replace("from ._rows import ROWS", "ROWS = ['spos']"),
    "methods/.hidden": "not sent",
    "methods/__pycache__/own.pyc": "not sent",
}


def messages(sender: str, packed: bytes) -> list[dict[str, Any]]:
    return [message for text in pull(sender, packed, []) for message in json.loads(text)]


def order(folder: Path, names: tuple[str, ...] = ("mine",)) -> Order:
    asked = Asked([study for name in names for study in find_studies(name)], "tiny")
    (folder / "parcel").mkdir()
    return Order.of(asked, Settings(Places(Path("runs"))), pack(asked, folder / "parcel"), "cpu")


def test_a_parcel_has_the_files_of_the_user_and_no_others(tmp_path: Path) -> None:
    with user_folder(tmp_path, FILES):
        sent = order(tmp_path, ("mine", "elsewhere/alone.py", "ablation_calr_ms"))
        found = sorted(path.relative_to(tmp_path / "parcel").as_posix() for path in (tmp_path / "parcel").rglob("*.*"))
    assert found == [
        "elsewhere/elsewhere/alone.py",
        "methods/own.py",
        "parcel.txt",
        "studies/_rows.py",
        "studies/mine.py",
    ]
    assert sent.studies == ("mine", "elsewhere/elsewhere/alone.py", "ablation_calr_ms")
    assert sent.settings.places.directory == tmp_path / "runs"
    assert sent.environment["HARNESS_DATA"] == str(tmp_path / "data")
    before = digest_of(tmp_path / "parcel")
    (tmp_path / "parcel/methods/own.py").write_text("changed")
    assert digest_of(tmp_path / "parcel") != before


def test_another_engine_and_other_files_are_refused_by_name(tmp_path: Path) -> None:
    with user_folder(tmp_path, FILES):
        sent = order(tmp_path)
        (refused,) = messages("0.0.1 0123456789abcdef", sent.packed()[1])
        assert refused["event"] == "refused"
        assert f"is {identity()}, that of `run` is 0.0.1 0123456789abcdef" in refused["error"]
        (refused,) = messages(*replace(sent, parcel="another").packed())
        assert refused["event"] == "refused"
        assert f"in {tmp_path}, are not those that `run` sent" in refused["error"]


def test_a_task_has_the_senders_settings_and_keeps_its_own_environment_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with user_folder(tmp_path, FILES), mock.patch.dict(os.environ):
        monkeypatch.setenv("HARNESS_SENT", "there")
        sent = replace(order(tmp_path), parcel=digest_of(tmp_path), studies=("unknown",))
        os.environ |= {"HARNESS_SENT": "here", "HARNESS_OWN": "here", "OWN": "here"}
        (refused,) = messages(*sent.packed())
        assert "unknown" in refused["error"]  # which is found out only after the environment is set
        assert os.environ["HARNESS_SENT"] == "there" and "HARNESS_OWN" not in os.environ
        assert os.environ["OWN"] == "here" and "PATH" in os.environ


def test_what_cannot_be_asked_of_ray_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="Ray's client cannot follow tasks"):
        Wanted("ray://head:10001")
    with pytest.raises(UserError, match="computes on one GPU per rank, and has --ranks 1$"):
        Wanted(gpus=2)
    with pytest.raises(UserError, match="--gpus-per-trial 1 and --device cpu exclude each other"):
        Wanted(gpus=1, device="cpu")
    assert Wanted(device="cpu").gpus is None
    with user_folder(tmp_path, FILES):
        assert main(["run", "mine", "--cpus-per-trial", "2"]) == 2
        assert "are for --executor ray" in capsys.readouterr().err
        assert main(["run", "mine", "--executor", "ray", "--until", "decided"]) == 2
        assert "--until and --executor ray exclude each other" in capsys.readouterr().err


def test_a_crew_begins_without_tasks_of_another(tmp_path: Path) -> None:
    with user_folder(tmp_path, FILES):
        sent = order(tmp_path)
    one, other = (RayCrew(None, sent, 2, 1, "1 CPUs", 1.0, 0.0) for _ in range(2))
    assert one.tasks == {} and one.tasks is not other.tasks
    one.drop(0)  # that was never started
    one.stop()


def test_without_ray_the_extra_is_named(tmp_path: Path) -> None:
    script = "import sys; sys.modules['ray'] = None; from harness.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "run", "ablation_calr_ms", "--preset", "tiny", "--executor", "ray"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 2
    assert done.stderr == "error: --executor ray needs Ray, which is not installed: pip install 'nas-harness[ray]'\n"
