"""Units that fit the numbers of a table."""

from __future__ import annotations

import pytest

from harness.components.discovery import component

units, values = component("reports.units"), component("reports.values")


def fitted(label: str, *numbers: float, digits: int = 4) -> tuple[str, list[str]]:
    """The heading and the values of a column, fitted."""
    column = values.ValueColumn(label, "m", "digits", digits, None, 1.0)
    rows = [
        values.TableRow(("a",), (values.Value((values.Measurement(0, number, "run", "done"),), digits),), 0)
        for number in numbers
    ]
    table = values.Table("s", "tiny", "S", "", ("Row",), None, (column,), (tuple(rows),), ())
    found = units.fitted(table)
    return found.columns[0].label, [row.values[0].mean for block in found.blocks for row in block]


@pytest.mark.parametrize(
    ("label", "numbers", "heading", "shown"),
    [
        ("Training (h)", (0.0009, 0.0012), "Training (s)", ["3.24", "4.32"]),
        ("Training (h)", (0.05, 0.5), "Training (min)", ["3.0", "30.0"]),
        ("Training (h)", (2.5, 0.01, 16.0), "Training (h)", ["2.5000", "0.0100", "16.0000"]),
        ("Params. (M)", (0.045, 0.3), "Params. (k)", ["45", "300"]),
        ("Peak memory (MB)", (53.0,), "Peak memory (MB)", ["53.0000"]),
        ("Top-1 (%)", (0.01,), "Top-1 (%)", ["0.0100"]),
        ("Training (h)", (0.0, 0.0), "Training (h)", ["0.0000", "0.0000"]),
        ("Kendall's τ", (0.01,), "Kendall's τ", ["0.0100"]),
    ],
)
def test_a_column_far_below_its_unit_is_in_a_smaller_one(
    label: str, numbers: tuple[float, ...], heading: str, shown: list[str]
) -> None:
    assert fitted(label, *numbers) == (heading, shown)


def test_what_is_quoted_keeps_its_unit() -> None:
    column = values.ValueColumn("Training (h)", "m", "cifar10", 2, None)
    quotation = values.Quotation("2.67", "", "Table 2")
    own = values.Value((values.Measurement(0, 0.001, "run", "done"),), 2)
    theirs = values.Value((values.Measurement(None, 2.67, "Table 2", "quoted"),), 2, quotation=quotation)
    rows = tuple(values.TableRow(("a",), (value,), 0) for value in (own, theirs))
    found = units.fitted(values.Table("s", "tiny", "S", "", ("Row",), None, (column,), (rows,), ()))
    assert [row.values[0].mean for row in found.blocks[0]] == ["3.60", "2.67"]
