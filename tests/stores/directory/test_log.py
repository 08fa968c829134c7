"""The log of a run: everything that was printed, but no drawings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.stores.directory.log import drop_drawings, output_to


def test_python_descriptors_and_children_all_print_into_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "cout.txt"
    with output_to(log):
        print("by print")
        print("to stderr", file=sys.stderr)
        os.write(1, b"by descriptor 1\n")
        os.write(2, b"by descriptor 2\n")
        subprocess.run(["sh", "-c", "echo by a child; echo its error >&2"], check=True)
    print("afterwards")
    lines = ["by print", "to stderr", "by descriptor 1", "by descriptor 2", "by a child", "its error"]
    assert log.read_text().splitlines() == lines
    assert capfd.readouterr() == ("afterwards\n", "")


def test_streams_are_given_back_after_an_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), output_to(tmp_path / "cout.txt"):
        print("before")
        _ = 1 / 0
    os.write(1, b"here\n")
    assert capfd.readouterr().out == "here\n"
    assert (tmp_path / "cout.txt").read_text() == "before\n"


@pytest.mark.parametrize(
    ("printed", "kept"),
    [
        ("plain\nlines\n", "plain\nlines\n"),
        ("start\n 1%\r 2%\r100%\nend\n", "start\n100%\nend\n"),
        (" 1%\r 2%\r", " 2%"),
        ("of Windows\r\nlines\r\n", "of Windows\nlines\n"),
        ("wiped\r     \r\nend\n", "wiped\nend\n"),
        ("\r\r\n", "\n"),
        ("", ""),
    ],
)
def test_drawings_are_dropped(tmp_path: Path, printed: str, kept: str) -> None:
    log = tmp_path / "cout.txt"
    log.write_bytes(printed.encode())
    drop_drawings(log)
    assert log.read_bytes().decode() == kept


def test_bytes_that_are_no_text_stay(tmp_path: Path) -> None:
    log = tmp_path / "cout.txt"
    log.write_bytes(b"a\rb \xff\xfe\n")
    drop_drawings(log)
    assert log.read_bytes() == b"b \xff\xfe\n"
