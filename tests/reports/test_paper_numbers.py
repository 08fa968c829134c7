"""The paper's numbers agree with its source, and with each other."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from harness.components.discovery import component
from harness.errors import DataError
from tests.reports.paper_source import Bold, SourceTable, plain, source_tables, spelled, texts

numbers: Any = component("reports.paper.numbers")

SOURCE = os.environ.get("HARNESS_PAPER")
DIGEST = "2d5381470c5d6c4635b66b0c9e315b37873abc4cf5b991e2fff436a95c618657"
"""Of all numbers and their places. It changes only with an error found: then compare with the source again."""

DATASETS = {"CIFAR-10": "cifar10", "CIFAR-100": "cifar100", "ImageNet16-120": "imagenet16-120", "ImageNet": "imagenet"}
OURS = {
    "-": "–",
    "e^x": "eˣ",
    "log(x)": "log x",
    "-log(k-C(α))": "−log(k − C(α))",
    "-log(C(α))": "−log C(α)",
    **dict(zip(("≤6M", "≤7.5M", "≤9M"), "SML", strict=True)),
    **{f"A_{n}": f"A{'₀₁₂₃₄₅'[n]}" for n in range(6)},
}


def canonical(tables: Any) -> list[Any]:
    return [
        [
            table.name,
            [[column.metric, column.dataset, column.unit] for column in table.columns],
            [[dict(row.labels), [v and [v.mean, v.deviation, v.bold] for v in row.values]] for row in table.rows],
        ]
        for table in tables
    ]


def test_no_digit_changes_unnoticed() -> None:
    text = json.dumps(canonical(numbers.tables()), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == DIGEST


def test_every_table_is_here_in_the_papers_order() -> None:
    assert [table.name for table in numbers.tables()] == [f"Table {one}" for one in "123456ABCDEFGHIJKLM"]


@pytest.mark.skipif(
    SOURCE is None, reason="HARNESS_PAPER names neither the paper's LaTeX source nor the folder that holds it alone"
)
def test_the_numbers_are_those_of_the_papers_source(record_property: Any) -> None:
    named = Path(str(SOURCE))
    (file,) = named.iterdir() if named.is_dir() else [named]
    printed = source_tables(file.read_text(encoding="utf-8"))
    ours = numbers.tables()
    assert [(f"Table {table.name}", table.label) for table in printed] == [(table.name, table.label) for table in ours]
    compared = sum(agree(table, own) for table, own in zip(printed, ours, strict=True))
    record_property("numbers_compared", compared)
    print(f"{compared} numbers compared with {SOURCE}")
    assert compared == sum(value is not None for table in ours for row in table.rows for value in row.values)


def agree(printed: SourceTable, own: Any) -> int:
    """Compare labels, headings and values; the count of numbers compared."""
    pairs = 2 if "/" in plain(printed.rows[0][-1]) else 1
    first = len(printed.headings[-1]) - len(own.columns) // pairs
    for place, column in enumerate(own.columns):
        heads = [plain(row[first + place // pairs]) for row in printed.headings]
        named = [DATASETS[head] for head in heads if head in DATASETS]
        assert named == [column.dataset] or (not named and caption_names(printed.caption, column.dataset))
        heading = column.heading.replace("C³", "C^3")
        assert heads[-1] == heading if pairs == 1 else f"{heading}" in printed.caption
    count = 0
    above = ""
    assert len(printed.rows) == len(own.rows)
    for trials, row in zip(printed.rows, own.rows, strict=True):
        head = re.sub(r" \[\d+\]$", "", plain(trials[0]))
        above = above if head.startswith("+") else head
        assert labelled([head, *texts(trials[1:first])], above, list(row.labels)) == dict(row.labels), printed.name
        found = [number for trial in trials[first:] for number in values(trial)]
        stored = [value and (value.mean, value.deviation, value.bold) for value in row.values]
        assert found == stored, (printed.name, dict(row.labels))
        count += sum(value is not None for value in found)
    return count


def caption_names(caption: str, dataset: str) -> bool:
    """Whether a caption speaks of that data set; with several, the first is meant."""
    found = re.search("|".join(sorted(DATASETS, key=len, reverse=True)), caption)
    # Memory and hours stand once in a table of three data sets, for the first of them.
    return found is not None and DATASETS[found[0]] == dataset


def labelled(trials: list[str], above: str, names: list[str]) -> dict[str, str | bool]:
    """What the studies call the row: "SPOS + Ours" is a row of SPOS that is ours, "+CaLR" one of the method above."""
    head, *rest = trials
    if names == ["Method", "CaLR", "γ(α) ∝"] and not rest:
        added = head == "+CaLR"
        return {"Method": above, "CaLR": added, "γ(α) ∝": "−log C(α)" if added else "–"}
    if "Ours" in names:
        rest = ["✓" if head.endswith(" + Ours") else "-", *rest]
        head = head.removesuffix(" + Ours")
    labels: dict[str, str | bool] = {}
    for name, trial in zip(names, [head, *rest], strict=True):
        labels[name] = {"✓": True, "-": False}[trial] if name in ("Ours", "CaLR", "MS") else OURS.get(trial, trial)
    return labels


def values(trial: Bold) -> list[tuple[str, str | None, bool] | None]:
    """The numbers of a trial: mean, deviation, and whether the mean is bold; None for a dash."""
    dense = [(character, bold) for character, bold in trial if not character.isspace()]
    text = "".join(character for character, _ in dense)
    if text == "-":
        return [None]
    found: list[tuple[str, str | None, bool] | None] = []
    place = 0
    for part in text.split("/"):
        match = re.fullmatch(r"(-?\d+(?:\.\d+)?)M?(?:±(\d+(?:\.\d+)?))?", part)
        assert match, text
        found.append((match[1], match[2], all(bold for _, bold in dense[place : place + len(match[1])])))
        place += len(part) + 1
    return found


def test_the_reader_of_the_source_knows_what_the_paper_uses() -> None:
    source = r"""
    \begin{table}[t] \caption{On CIFAR-10~\cite{x}.} \label{tab:first}
    \begin{tabular}{lcc} \toprule
    \multirow{2}{*}[-2pt]{\centering Method} & \multicolumn{2}{c}{\begin{tabular}[c]{@{}c@{}}Two\\ lines\end{tabular}}
    \\
    \cmidrule(lr){2-3} & A & B \% \\ \midrule
    \multirow{2}{*}{SPOS~\cite{a}} & $\textbf{0.81}\pm0.02$ & \\ % a remark
    \rowcolor{gray!20} & $\mathbf{0.8 / 93.5}$ & \multirow{-2}{*}{7} \\ \hline
    PA\&DA & \textbf{0.8$\pm$0.1} & - \\ \bottomrule
    \end{tabular} \end{table}
    \renewcommand{\thetable}{\Alph{table}}
    \begin{table*}[t] \captionof{table}{Two} \label{tab:second}
    \begin{tabular}{l} Head \\ \midrule $-\log(\mathcal{C}(\alpha))$ \\ \end{tabular} \end{table*}
    """
    first, second = source_tables(source)
    assert (first.name, first.label, first.caption, second.name) == ("1", "tab:first", "On CIFAR-10 .", "A")
    assert [texts(row) for row in first.headings] == [["Method", "Two lines", "Two lines"], ["Method", "A", "B %"]]
    assert [texts(row) for row in first.rows] == [
        ["SPOS", "0.81±0.02", "7"],
        ["SPOS", "0.8 / 93.5", "7"],
        ["PA&DA", "0.8±0.1", "-"],
    ]
    assert [values(row[1]) for row in first.rows] == [
        [("0.81", "0.02", True)],
        [("0.8", None, True), ("93.5", None, True)],
        [("0.8", "0.1", True)],
    ]
    assert values(spelled("-")) == [None]
    assert plain(second.rows[0][0]) == "-log(C(α))"


def test_a_row_of_a_study_finds_the_papers() -> None:
    labels = {"CaLR": True, "Method": "SPOS", "MS": True}
    found = numbers.quoted("ablation_calr_ms", labels, "kendall_tau", "cifar100")
    assert found == numbers.Number("0.81", None, True, "Table 3")
    assert numbers.quoted("ablation_calr_ms", labels, "kendall_tau", "digits") is None
    assert numbers.quoted("ablation_calr_ms", labels | {"MS": "✓"}, "kendall_tau", "cifar100") is None
    optimal = {"Method": "Optimal", "Ours": False}
    assert numbers.quoted("nb201_main", optimal, "kendall_tau", "cifar10") is None
    assert numbers.quoted("nb201_main", optimal, "top1_accuracy", "cifar10").mean == "94.37"


def test_where_two_tables_print_a_row_the_first_is_quoted() -> None:
    labels = {"Method": "SPOS", "CaLR": False, "γ(α) ∝": "–"}
    assert numbers.quoted("unfairness", labels, "complexity_bias", "cifar10").table == "Table 4"
    assert numbers.quoted("unfairness", labels, "complexity_bias", "cifar100").table == "Table D"


def test_cifar10_stands_beside_what_the_paper_does_not_have() -> None:
    assert [numbers.beside(name) for name in ("digits", "cifar10-16", "cifar100")] == ["cifar10", "cifar10", "cifar100"]


def test_the_known_misprint_is_kept_and_told() -> None:
    five = numbers.quoted("num_clusters", {"Method": "SPOS", "Clusters": "5"}, "kendall_tau", "cifar10")
    assert (five.mean, five.deviation) == ("0.81", "0.024")
    (table,) = [table for table in numbers.tables() if table.name == "Table 6"]
    assert "as printed" in table.remark


def broken(change: Any, folder: Path) -> str:
    """What the loader says of Table 4 with something changed."""
    document = json.loads((numbers.FOLDER / "table_4.json").read_text())
    change(document)
    (folder / "table_4.json").write_text(json.dumps(document))
    with pytest.raises(DataError) as caught:
        numbers.load(folder)
    assert "table_4.json" in str(caught.value)
    return str(caught.value)


def test_a_damaged_file_is_told_and_where(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="reinstall it"):
        numbers.load(tmp_path)
    assert "got" in broken(lambda d: d.pop("study"), tmp_path)
    assert "row 2: 3 values for 2 columns" in broken(lambda d: d["rows"][1]["values"].append(None), tmp_path)
    assert "'.8' is not a number" in broken(lambda d: d["rows"][0]["values"][0].update(mean=".8"), tmp_path)
    assert "wrong type" in broken(lambda d: d["rows"][0]["values"][0].update(mean=0.8), tmp_path)
    assert "the same labels" in broken(lambda d: d["rows"].append(d["rows"][0]), tmp_path)
    assert "same metric and data set" in broken(lambda d: d["columns"][1].update(metric="complexity_bias"), tmp_path)
    assert "'Table 9'" in broken(lambda d: d.update(table="Table 9"), tmp_path)
    assert "labels must be text" in broken(lambda d: d["rows"][0]["labels"].update(Method=1), tmp_path)
    (tmp_path / "table_4.json").write_text("{")
    with pytest.raises(DataError, match="cannot be read as JSON"):
        numbers.load(tmp_path)


def test_tables_of_a_study_that_disagree_are_an_error(tmp_path: Path) -> None:
    for name in ("table_4.json", "table_D.json"):
        (tmp_path / name).write_text(
            (numbers.FOLDER / name).read_text().replace("0.63", "0.64", name == "table_D.json")
        )
    with pytest.raises(DataError, match="Table 4 and Table D disagree on complexity_bias .*: 0.63 and 0.64"):
        numbers.load(tmp_path)
