"""A store that is named and is not there is refused by whatever reads; the usual one may be made later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import results
from harness.cli import main
from harness.components.preset import get_preset
from harness.errors import UserError
from harness.stores.places import address_in
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests.stored_runs import store_run
from tests.toy import user_folder

READING = [
    ["report", "ablation_calr_ms", "--preset", "tiny"],
    ["report"],
    ["status"],
    ["query"],
    ["show", "0123"],
    ["diff", "0123", "4567"],
    ["rerun", "0123"],
    ["store", "check"],
    ["store", "clean"],
    ["store", "export", "ablation_calr_ms", "file.tar"],
    ["store", "recompute", "ablation_calr_ms", "--preset", "tiny"],
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """A user's folder with one run in `runs-2024`."""
    with user_folder(tmp_path):
        store_run(Path("runs-2024"), expand(find_studies("ablation_calr_ms")[0], get_preset("tiny"), 1)[0], 0.5)
        yield tmp_path


@pytest.mark.parametrize("command", READING, ids=lambda command: " ".join(command[:2]))
def test_a_named_store_that_is_not_there_is_refused(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--store", "runs-2042"]) == 2
    printed = capsys.readouterr()
    assert printed.err == "error: there is no store runs-2042; did you mean runs-2024?\n" and not printed.out
    assert not Path("runs-2042").exists()


def test_the_message_says_what_is_near(capsys: pytest.CaptureFixture[str]) -> None:
    for place, told in {
        "nowhere/runs": "there is no store nowhere/runs: nowhere is not a directory",
        "quite-other": "there is no store quite-other; `harness run` makes one",
    }.items():
        assert main(["status", "--store", place]) == 2
        assert capsys.readouterr().err == f"error: {told}\n"
    Path("runs").mkdir()
    assert main(["status", "--store", "quite-other"]) == 2
    assert "did you mean runs?" in capsys.readouterr().err


def test_pandas_refuses_it_too() -> None:
    for store in ("runs-2042", Path("runs-2042")):
        with pytest.raises(UserError, match=r"there is no store runs-2042; did you mean runs-2024\?"):
            results.runs(store=store)
    assert len(results.runs(store="runs-2024")) == 1


@pytest.mark.parametrize("variable", [None, "elsewhere"])
def test_the_usual_store_may_be_made_later(
    variable: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if variable is not None:
        monkeypatch.setenv("HARNESS_STORE", variable)
    told = f"there is no store {variable or 'runs'} yet: `harness run STUDY` makes it"
    for command in (["status"], ["plan", "ablation_calr_ms"], ["report", "ablation_calr_ms"], ["store", "check"]):
        assert main(command) == 0
        assert told in capsys.readouterr().err
    assert results.runs().empty
    assert told in capsys.readouterr().err
    assert not Path(variable or "runs").exists()


def test_a_file_may_hold_the_address_of_the_database(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path("address")
    file.write_text("mongodb://lab:p@ss/word@host/nas\n")
    file.chmod(0o600)
    assert main(["status", "--mongo-file", "address"]) == 2
    printed = capsys.readouterr().err
    assert "user and password must be percent-encoded" in printed and "ss/word" not in printed
    assert main(["status", "--mongo-file", "address", "--mongo", "mongodb://host"]) == 2
    assert capsys.readouterr().err == "error: --mongo and --mongo-file exclude each other\n"


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("mongodb://lab:word@host/nas", 0o644, "may be read by everybody on this machine: `chmod 600 address`"),
        ("runs", 0o600, "holds no database address: one line, mongodb://"),
        ("mongodb://a\nmongodb://b", 0o600, "holds no database address: one line, mongodb://"),
        (None, 0o600, "cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_with_that_file_is_said_without_its_content(
    text: str | None, mode: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        Path("address").write_text(text)
        Path("address").chmod(mode)
    assert main(["status", "--mongo-file", "address"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: --mongo-file address {message}") and "word" not in printed


def test_an_address_in_a_file_that_is_one_s_own_is_read() -> None:
    Path("address").write_text("mongodb://lab:word@host/nas\n")
    Path("address").chmod(0o640)  # a lab may share it
    assert address_in(Path("address")) == "mongodb://lab:word@host/nas"
