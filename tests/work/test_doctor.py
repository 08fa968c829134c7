"""Single checks of `harness doctor`: each finds a real problem, and says what to do."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymongo
import pytest

from harness import environment
from harness.stores.directory.store import DirectoryStore
from harness.stores.places import Places
from harness.work import doctor
from harness.work.findings import Finding
from tests.listed_gpus import listed_gpus
from tests.mongod import Mongod
from tests.toy import user_folder

PASSWORD = "s3cret"


def problems(found: Iterator[Finding]) -> list[Finding]:
    wrong = [one for one in found if one.state == "problem"]
    assert all(one.advice for one in wrong)
    return wrong


def test_a_store_that_is_a_file_or_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("not a folder")
    (found,) = problems(doctor.check_store(Places(tmp_path / "runs")))
    assert "is not a directory" in found.text and "--store" in found.advice
    (found,) = doctor.check_store(Places(tmp_path / "none" / "yet"))
    assert found.state == "note" and "the first `harness run` makes it" in found.text
    (found,) = problems(doctor.check_store(Places(Path("/proc/none"))))  # nobody can write there, not even root
    assert "no file can be written in /proc" in found.text
    assert list(tmp_path.iterdir()) == [tmp_path / "runs"]


def test_a_clock_that_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not problems(doctor.check_store(Places(tmp_path)))
    now = time.time()
    monkeypatch.setattr(doctor, "time", SimpleNamespace(time=lambda: now + 100))
    (found,) = problems(doctor.check_store(Places(tmp_path)))
    assert found.subject == "clock" and "100 s behind" in found.text


def test_a_claim_of_a_dead_process(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from harness.stores.claims import Claims
from harness.stores.directory.records import DirectoryRecords
Claims(DirectoryRecords(Path({str(tmp_path)!r}))).acquire("{"a" * 64}")
import os; os._exit(9)"""
    subprocess.run([sys.executable, "-c", script], check=False)
    (found,) = [one for one in doctor.check_store(Places(tmp_path)) if one.subject == "claims"]
    assert "1 claim of dead" in found.text and "store check --fix" in found.advice


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mongod]:
    """A server with a user who may read, and no more."""
    one = Mongod(tmp_path_factory.mktemp("guarded"), "--auth")
    one.start()
    with pymongo.MongoClient[dict[str, Any]](one.uri) as client:  # the first user may be made from this machine
        client["admin"].command("createUser", "root", pwd=PASSWORD, roles=[{"role": "root", "db": "admin"}])
    with pymongo.MongoClient[dict[str, Any]](one.uri, username="root", password=PASSWORD) as client:
        client["admin"].command("createUser", "reader", pwd=PASSWORD, roles=[{"role": "read", "db": "nas"}])
    yield one
    one.kill()


def test_a_database_that_refuses(guarded: Mongod, tmp_path: Path) -> None:
    place = f"127.0.0.1:{guarded.port}/nas?authSource=admin&directConnection=true"
    for password, expected in (("wrong-one", "authentication failed"), (PASSWORD, "permission denied")):
        (found,) = problems(doctor.check_database(Places(tmp_path, f"mongodb://reader:{password}@{place}")))
        assert expected in found.text and password not in found.text + found.advice


def test_a_database_that_lacks_runs(
    mongod: str, mongo_database: pymongo.database.Database[dict[str, Any]], tmp_path: Path
) -> None:
    from tests.stores.conftest import trial

    DirectoryStore(tmp_path).create(trial(), "tiny", {})
    address = mongod.replace("/?", f"/{mongo_database.name}?")
    answers, behind = doctor.check_database(Places(tmp_path, address))
    assert answers.state == "ok" and "MongoDB " in answers.text
    assert behind.state == "note" and "1 run of" in behind.text and "store sync" in behind.advice
    assert not mongo_database.list_collection_names()  # nothing was written


def test_what_is_left_out_is_a_problem_and_the_rest_is_checked(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    files = {
        "methods/mine.py": "import harness\n\nharness.nothing()\n",
        "methods/silent.py": "WIDTH = 3\n",
        "dataset/other.py": "import harness\n",
    }
    with user_folder(tmp_path, files):
        broken, silent, folder = problems(doctor.check_components())
        assert f"{tmp_path / 'methods' / 'mine.py'}:3 does not import" in broken.text and "underscore" in broken.advice
        assert f"{tmp_path / 'methods' / 'silent.py'} registers nothing" in silent.text
        assert folder.text == "./dataset is not read" and "rename it to ./datasets" in folder.advice
        assert {"data sets", "tables"} <= {one.subject for one in doctor.check_contents() if one.state == "ok"}
    assert not recwarn.list  # told as findings alone


def test_a_file_that_hides_a_module(tmp_path: Path) -> None:
    (tmp_path / "random.py").write_text("")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("")
    (tmp_path / "mine.py").write_text("")
    hidden = [one.text for one in problems(doctor.check_hidden(tmp_path))]
    assert len(hidden) == 2 and "random.py hides" in hidden[0] and "'torch'" in hidden[1]


@pytest.mark.parametrize("installed", [False, True])
def test_versions_out_of_bounds(installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if installed:  # without a checkout beside it, the bounds are those of the installed package
        monkeypatch.setattr(environment, "ENGINE", tmp_path / "engine")
    assert not problems(doctor.check_packages())
    told = {word for one in doctor.check_packages() for word in one.text.replace(",", "").split()}
    assert not told & {"dev", "long"}  # whoever uses the harness needs neither
    for name, version, more in (
        ("setuptools", "99.0", ""),
        ("torchvision", "9.0", "Requires-Dist: torch (==1.0)\n"),
        ("pyarrow", "3.0", ""),
    ):
        place = tmp_path / f"{name}-{version}.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{more}")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {one.text: one.advice for one in problems(doctor.check_packages())}
    assert found["setuptools is 99.0; <81 is needed"] == "pip install 'setuptools<81'"
    assert found["parquet: pyarrow is 3.0; >=15 is needed"] == "pip install 'pyarrow>=15'"
    (pair,) = [text for text in found if text.startswith("torchvision 9.0: torch is ")]
    assert pair.endswith("==1.0 is needed") and len(found) == 3


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte; needs the right to mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True)
    if done.returncode:
        pytest.skip("no right to mount a file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_too_small_for_a_run(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = problems(doctor.check_disk(small_disk / "runs"))
    assert "MB free" in found.text or "kB free" in found.text
    assert "a run may need 32.0 MB" in found.text and "HARNESS_STORE" in found.advice
    monkeypatch.setenv("TMPDIR", str(small_disk))
    with (small_disk / "ballast").open("wb") as file, pytest.raises(OSError):
        file.write(bytes(2 << 20))
        file.flush()
    (found,) = problems(doctor.check_temporary())
    assert "which TMPDIR names: No space left" in found.text


def torch_stand_in(folder: Path, built_for: str | None, usable: bool) -> None:
    """A torch of that kind, and packages beside it that import at once."""
    count = int(usable)
    (folder / "torch.py").write_text(
        "import types, warnings\n"
        f"version = types.SimpleNamespace(cuda={built_for!r}, hip=None)\n"
        "def is_available():\n"
        f"    {usable} or warnings.warn('The NVIDIA driver on your system is too old')\n"
        f"    return {usable}\n"
        f"names = dict(device_count=lambda: {count}, get_device_name=lambda number: f'Listed {{number}}')\n"
        "cuda = types.SimpleNamespace(is_available=is_available, **names)\n"
    )
    for name in ("torchvision", "sacred"):
        (folder / f"{name}.py").write_text("")


@pytest.mark.parametrize(
    ("built_for", "usable", "visible", "state", "text"),
    [
        (None, False, None, "problem", "NVIDIA Listed 0, but torch cannot use it: this torch is built for CPUs"),
        ("12.9", False, None, "problem", "cannot use it: The NVIDIA driver on your system is too old"),
        ("12.9", False, "", "note", "CUDA_VISIBLE_DEVICES= hides all GPUs"),
        ("12.9", True, None, "ok", "1: Listed 0"),
    ],
)
def test_what_torch_says_of_a_gpu(
    built_for: str | None,
    usable: bool,
    visible: str | None,
    state: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(environment, "DRIVER", listed_gpus(tmp_path / "driver", 1))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    torch_stand_in(tmp_path, built_for, usable)
    monkeypatch.chdir(tmp_path)
    (found,) = doctor.Probe(600.0).findings()
    assert found.state == state and text in found.text, found


def test_a_torch_that_does_not_answer_or_does_not_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = problems(doctor.Probe(0.0).findings())
    assert "did not answer" in found.text and "--wait" in found.advice
    for name, text in (("torch", "raise OSError('libcudart.so: no such file')"), ("sacred", "import pkg_resources_99")):
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "torchvision.py").write_text("")
    monkeypatch.chdir(tmp_path)
    torch, sacred = problems(doctor.Probe(600.0).findings())
    assert "torch does not import: OSError: libcudart.so" in torch.text and "sacred does not import" in sacred.text
