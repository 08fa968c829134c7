"""Tables that fit the terminal."""

from __future__ import annotations

from harness.documents import table

ROWS = [["one", "1.5", "a long text"], ["two", "2.5", "another long text"]]
HEADINGS = ["name", "number", "text"]


def test_a_table_that_fits_stays_whole() -> None:
    whole = table(ROWS, HEADINGS)
    assert table(ROWS, HEADINGS, width=max(map(len, whole.splitlines()))) == whole
    assert len(whole.splitlines()) == 4


def test_a_wide_table_becomes_several_with_the_first_columns_in_each() -> None:
    first, second = table(ROWS, HEADINGS, width=24, align=["left", "right", "left"]).split("\n\n")
    assert [line.split() for line in first.splitlines()][::2] == [["name", "number"], ["one", "1.5"]]
    assert [line.split()[0] for line in second.splitlines()][::2] == ["name", "one"]
    assert "another long text" in second and "2.5" not in second


def test_a_column_that_is_wider_than_the_terminal_stands_alone() -> None:
    parts = table(ROWS, HEADINGS, width=5).split("\n\n")
    assert [part.split()[:2] for part in parts] == [["name", "number"], ["name", "text"]]


def test_a_table_without_rows_has_headings() -> None:
    assert table([], HEADINGS, width=10, align=["left"] * 3).split("\n\n")[0].split()[:2] == ["name", "number"]
