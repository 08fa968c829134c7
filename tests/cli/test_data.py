"""`harness data` on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli import main
from tests.data.formats import SMALL_CIFAR10, png, write_cifar, write_tree
from tests.toy import user_folder

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def own_data(data: Path) -> Path:
    return data


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    assert main(["data", *arguments]) == status
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def row(table: str, name: str) -> str:
    return next(line for line in table.splitlines() if line.split()[:1] == [name])


def test_the_list_says_what_is_there_and_how_to_get_the_rest(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = shown(capsys, "list")
    assert "embedded" in row(table, "digits") and "1,536 train, 512 valid, 1,000 test" in row(table, "digits")
    for name in ("cifar10", "cifar10-16", "cifar100", "fashion-mnist", "imagenet16-120", "folder"):
        assert "missing" in row(table, name) and str(data) in row(table, name)
        assert any(line.startswith(f"{name}: ") for line in table.splitlines())
    assert "cifar100: " in table and "harness data check cifar100 --download" in table
    assert f"looked for in {data} (HARNESS_DATA)" in table and "(HARNESS_CACHE)" in table


def test_the_list_knows_used_and_incomplete_data(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(data / "folder" / "train", ["ant", "bee"], 10)
    write_cifar(data, SMALL_CIFAR10)
    (data / "cifar-10-batches-py" / "data_batch_4").unlink()
    table = shown(capsys, "list")
    assert "not decoded" in row(table, "folder") and f"{data / 'folder'} (image folder)" in row(table, "folder")
    assert "incomplete" in row(table, "cifar10") and "data_batch_4: missing" in table
    shown(capsys, "check", "folder")
    assert "present" in row(shown(capsys, "list"), "folder")
    assert "12 train, 4 valid, 4 test" in row(shown(capsys, "list"), "folder")


def test_good_data_is_verified(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(data / "folder" / "train", ["ant", "bee"], 10, side=16)
    text = shown(capsys, "check", "folder")
    assert (
        "12 train, 4 valid, 4 test" in text and "3×16×16, 2 classes" in text and "crops of 2 pixels, mirrored" in text
    )
    assert text.endswith("folder: verified\n")
    assert shown(capsys, "check", "folder") == text
    assert shown(capsys, "check", "digits").endswith("digits: verified\n")


def test_bad_data_exits_with_1(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "check", "cifar100", status=1)
    assert "wrong: data set cifar100 not found" in text and text.endswith("cifar100: NOT verified\n")
    write_tree(data / "folder" / "train", ["ant", "bee"], 10)
    (wrong := data / "folder" / "train" / "ant" / "0003.png").write_bytes(png(9))
    text = shown(capsys, "check", "folder", status=1)
    assert f"wrong: {wrong}: has 9×9 pixels, not 8×8" in text
    # Readable, but not what was published.
    write_cifar(data, SMALL_CIFAR10)
    text = shown(capsys, "check", "cifar10", status=1)
    assert "data_batch_1: is not the original file (MD5 of its content " in text


def test_damaged_decoded_data_is_found_and_built_again(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(data / "folder" / "train", ["ant", "bee"], 10)
    text = shown(capsys, "check", "folder")
    place = next(line for line in text.splitlines() if line.startswith("decoded in")).split()[-1]
    content = bytearray((Path(place) / "valid_images.npy").read_bytes())
    content[-1] ^= 1
    (Path(place) / "valid_images.npy").write_bytes(content)
    assert "do not match their checksum" in shown(capsys, "check", "folder", status=1)
    assert shown(capsys, "check", "folder") == text


def test_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", "cifar1"]) == 2
    assert "no data set is named 'cifar1'; did you mean 'cifar10'?" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["imagenet16-120", "folder"])
def test_what_cannot_be_downloaded(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", name, "--download"]) == 2
    assert f"data set {name} cannot be downloaded" in capsys.readouterr().err


def test_nothing_is_downloaded_that_is_there(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_tree(data / "folder" / "train", ["ant", "bee"], 10)
    assert "folder is there, nothing is downloaded" in shown(capsys, "check", "folder", "--download")


@pytest.mark.parametrize("name", ["cifar10-16", "fashion-mnist"])
def test_a_download_that_fails_says_why_and_what_to_do(
    name: str, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("http_proxy", "https_proxy"):  # nobody listens there, so nothing is really downloaded
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
        monkeypatch.delenv(variable.upper(), raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setattr("urllib.request._opener", None)  # the one that is made now remembers the proxies
    assert main(["data", "check", name, "--download"]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith(f"error: cannot download {name} from http") and "refused" in error
    assert f"unpack it into {data}" in error


def test_neither_torch_nor_images_are_imported_for_a_fingerprint(data: Path) -> None:
    write_tree(data / "folder" / "train", ["ant", "bee"], 10)
    program = (
        "import sys; from harness.components.dataset import fingerprint; print(fingerprint('folder'));"
        "print([name for name in ('torch', 'PIL', 'pandas') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    first, second = (
        subprocess.run([sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True)
        for _ in range(2)
    )
    assert first.stdout.splitlines()[0] == second.stdout.splitlines()[0]
    assert first.stdout.splitlines()[1] == "['PIL']" and second.stdout.splitlines()[1] == "[]"


STUDY = """from harness.study import Column, Row, Study

SETTINGS = {"benchmark": None, "rank.images": None, "search": {"name": "best-of-n-random", "samples": 2}}
ROWS = [Row({"Images": name}, {**SETTINGS, "dataset": name}) for name in ("leaves", "pond life")]
study = Study("mine", "Mine", ROWS, [Column("Seconds", "wall_seconds")])
"""


def test_image_folders_have_names_in_the_settings(
    data: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Two data sets of their own, also in the processes of trials."""
    sides = {"leaves": 16, "pond life": 8}
    for name, side in sides.items():
        write_tree(tmp_path / name / "train", ["ant", "bee"], 60, side=side)
    folders = "".join(f'"{name}" = "{tmp_path / name}"\n' for name in sides)
    with user_folder(tmp_path / "project", {"harness.toml": f"[images]\n{folders}", "studies/mine.py": STUDY}):
        for name, side in sides.items():
            assert f"3×{side}×{side}, 2 classes" in shown(capsys, "check", name)
        assert main(["run", "mine", "--preset", "tiny", "--seeds", "1", "--no-references"]) == 0
    with user_folder(tmp_path / "another", {"harness.toml": f'[images]\ncifar10 = "{tmp_path}"\n'}):
        assert main(["data", "list"]) == 2
        assert "harness.toml" in capsys.readouterr().err
    with user_folder(tmp_path / "third", {"harness.toml": "[images]\nleaves = 3\n"}):
        assert main(["data", "list"]) == 2
        assert "images.leaves must be a folder, not 3" in capsys.readouterr().err
    with user_folder(tmp_path / "fourth", {"harness.toml": '[images]\nleaves = "none"\n'}):
        assert "name its folder in harness.toml, [images]" in shown(capsys, "check", "leaves", status=1)
