"""Tables of the page: the paper's values beside ours, and a difference only between what is alike."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from harness.components.discovery import component
from harness.components.preset import Preset, get_preset
from harness.study.catalogue import all_studies, find_studies

html_table, order = component("reports.render.html_table"), component("reports.paper.order")
values, report, evidence = component("reports.values"), component("reports.report"), component("reports.evidence")


def section(preset: Preset, dataset: str, overrides: dict[str, Any] | None = None) -> Any:
    """Two rows of Table 2, with invented values: τ 0.8 and 0.9, and 0.001 h."""
    (study,) = find_studies("nb201_main")
    columns = tuple(
        values.ValueColumn(one.label, one.metric, dataset, one.digits, one.best, one.scale)
        for one in study.columns
        if one.metric in ("kendall_tau", "stage_seconds.train")
    )
    rows = tuple(
        values.TableRow(tuple(study.rows[number].labels.values()), (value(tau, 3), value(0.001, 4)), number)
        for number, tau in enumerate((0.8, 0.9))
    )
    table = values.Table("nb201_main", preset.name, "T", "S.", tuple(study.rows[0].labels), 0, columns, (rows,), ())
    findings = evidence.Findings(study, preset, None, overrides or {}, None, [], [], [], 0, "store", [])
    grid = component("reports.paper.comparison").beside_the_paper(findings, table)
    return report.Section(table, (), findings, beside=(grid,))


def value(number: float, digits: int) -> Any:
    return values.Value((values.Measurement(0, number, "run", "done"),), digits)


def headings(shown: dict[str, Any]) -> list[str]:
    return [head["text"] for row in shown["heads"] for head in row]


def cells(shown: dict[str, Any]) -> list[list[str]]:
    return [[cell["mean"] for cell in row["cells"]] for block in shown["blocks"] for row in block]


def shown(one: Any) -> dict[str, Any]:
    found: dict[str, Any] = html_table.shown_table(html_table.page_table(one), [])
    return found


def test_a_difference_stands_where_data_set_and_preset_are_the_papers() -> None:
    found = shown(section(replace(get_preset("tiny"), name="paper"), "cifar10"))
    assert headings(found) == [
        *("Method", "Ours", "Kendall's τ", "Training (s)"),
        *("Measured", "Paper", "Difference", "Measured", "Paper (h)", "Difference"),
    ]
    # 3.6 s against 2.67 h, in our unit.
    assert cells(found)[0] == ["0.800", "0.751", "+0.049", "3.60", "2.67", "-9608.40"]


@pytest.mark.parametrize(
    ("preset", "dataset", "overrides"),
    [("paper", "digits", {}), ("small", "cifar10", {}), ("paper", "cifar10", {"train.epochs": 3})],
)
def test_there_is_no_difference_between_unlike_things(preset: str, dataset: str, overrides: dict[str, Any]) -> None:
    one = section(replace(get_preset("tiny"), name=preset), dataset, overrides)
    found = shown(one)
    assert "Difference" not in headings(found) and headings(found).count("Ours") == 1
    assert cells(found)[1] == ["0.900", "0.814", "3.60", "2.69"]
    assert ("The paper: cifar10." in found["scale"]) is (dataset == "digits")
    # The page says why, once.
    page = component("reports.render.html")
    assert page._unlike([html_table.page_table(one)] * 2).count("nowhere") == 1


def test_without_comparing_there_is_nothing_of_the_paper() -> None:
    one = replace(section(replace(get_preset("tiny"), name="paper"), "cifar10"), beside=())
    assert headings(shown(one)) == ["Method", "Ours", "Kendall's τ", "Training (s)"]


def test_quoted_rows_stand_in_the_papers_column() -> None:
    one = section(replace(get_preset("tiny"), name="demo"), "digits")
    quotation = values.Quotation("86.23", "4.93", "Table A, on cifar10", elsewhere=True)
    quoted = values.Value((values.Measurement(None, 86.23, "Table A", "quoted"),), 2, quotation=quotation)
    row = values.TableRow(("DARTS", False), (quoted, values.Value((), 2)), 0, source="paper")
    table = replace(one.table, blocks=((*one.table.blocks[0], row),), notes=("† Quoted from the paper.",))
    found = shown(replace(one, table=table))
    assert cells(found)[2][:2] == ["", "86.23"] and not any(note.startswith("†") for note in found["notes"])


def test_remarks_on_the_papers_tables_are_notes() -> None:
    remark = component("reports.paper.comparison").table_remarks(find_studies("nb201_main")[0])
    one = section(replace(get_preset("tiny"), name="paper"), "cifar10")
    assert remark and shown(one)["notes"] == remark and shown(replace(one, beside=()))["notes"] == []


def test_the_best_comes_first() -> None:
    found = shown(section(get_preset("tiny"), "digits"))
    first = {head["text"]: head["order"] for row in found["heads"] for head in row if head["sort"] is not None}
    assert first["Ours"] == "descending" and first["Method"] == "ascending"
    by_column = [head["order"] for head in found["heads"][-1]]
    assert by_column == ["descending", "descending", "ascending", "ascending"]  # τ, the paper's; hours, the paper's


def test_what_should_be_near_a_neutral_value_is_sorted_by_its_distance() -> None:
    column = values.ValueColumn("CB", "complexity_bias", "digits", 3, "nearest", reference=0.5)
    rows = tuple(values.TableRow((f"{number}",), (value(number, 3),), place) for place, number in enumerate((0.6, 0.3)))
    table = values.Table("s", "tiny", "S", "", ("Row",), None, (column,), (rows,), ())
    made = html_table.PageTable(table, neutral={(0, 0): 0.5, (1, 0): 0.5})
    found = html_table.shown_table(made, [])
    assert [row["cells"][0]["sort"] for row in found["blocks"][0]] == ["0.100000", "0.200000"]
    assert found["heads"][0][1]["order"] == "ascending" and "neutral" in found["heads"][0][1]["hint"]


def test_studies_are_in_the_order_of_the_paper() -> None:
    ordered = sorted(all_studies(), key=order.place)
    parts = [order.part(study) for study in ordered]
    assert parts == sorted(parts, key=order.PARTS.index) and set(parts) == set(order.PARTS)
    tables = [found[1] for study in ordered if (found := re.match(r"Tables? (\w+)", study.paper))]
    assert tables == sorted(tables) == list("123456ABCEFGHIJKLM")
    assert ordered[0].name == "training_curves"
    supplement = [study.name for study in ordered if order.part(study) == order.SUPPLEMENT]
    assert supplement[-1] == "searched_subnets"  # its figures are the paper's last
    assert [study.name for study in ordered if order.rebuilds_figures(study)] == ["training_curves"]
