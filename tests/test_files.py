"""Files are whole or not there."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.components.registry import Registry
from harness.documents import without_nan
from harness.errors import InvalidConfiguration
from harness.files import check_name, read_regular, sha256, write, write_json
from harness.study.layout import Column, Figure, Row
from harness.study.study import Study

NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(document=DOCUMENTS)
def test_nothing_but_json_is_left(document: Any) -> None:
    text = json.dumps(without_nan(document), allow_nan=False)
    assert without_nan(json.loads(text)) == without_nan(document)


def test_null_stands_for_what_is_no_number(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"τ": math.nan, "losses": (1.5, math.inf), "deep": {"er": [-math.inf]}})
    text = (tmp_path / "a.json").read_text()
    assert json.loads(text) == {"τ": None, "losses": [1.5, None], "deep": {"er": [None]}}
    assert "NaN" not in text and "Infinity" not in text


def test_what_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"a": 1})

    def fill(stream: IO[bytes]) -> None:
        stream.write(b'{"a": 2')
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        write(file, fill)
    assert json.loads(file.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [file]


def test_checksum(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256(tmp_path / "a").startswith("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")


@pytest.mark.parametrize(
    "name", ["../../x", "a/b", "a\\b", "..", "...", "", " ", " a", "a\n", "a\0", "a\u202eb", "a\x1b[2J", "a" * 101]
)
def test_names_that_could_lead_a_file_elsewhere_are_refused(name: str) -> None:
    row, column, registry = Row({"a": "b"}), Column("τ", "kendall_tau"), Registry[int]("method")
    makers: list[Callable[[], object]] = [
        lambda: Study(name, "", [row], [column]),
        lambda: Study("mine", "", [row], [column], figures=[Figure(name, "", [])]),
        lambda: registry.register(name, lazy="a:b"),
    ]
    for make in makers:
        with pytest.raises(InvalidConfiguration):
            make()
    with pytest.raises(InvalidConfiguration, match="Allowed are up to 100 letters, digits and signs, without /"):
        check_name("study", name)


@pytest.mark.parametrize("name", ["ablation_calr_ms", "cifar10", "imagenet16-120", "τ über .x", "a.b", "x (2)"])
def test_plain_names_are_allowed(name: str) -> None:
    check_name("study", name)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            read_regular(path)
