"""LaTeX: floats that fit a page at one font size, and the document that shows them all. `tests/long` compiles them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harness.cli import main
from harness.components.discovery import component
from harness.components.preset import get_preset
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests.stored_runs import store_run
from tests.toy import user_folder

NAME = "a%b c#d&e$f{g}h~i^j_k"
MAIN = """
from harness.study import Bars, Column, Figure, Row, Study

tau = Column("τ", "kendall_tau")
rows = [Row({"A": str(n)}, {"train.epochs": n}) for n in (1, 2, 3)]
study = Study("main", "C³ of 2²⁰", rows, [tau], figures=[Figure("bars", "Bars", [Bars("", tau)])])
"""
HOSTILE = f"""
from harness.study import Bars, Column, Figure, Row, Study

letters = "& % _ # $ \\\\ {{ }} ~ ^ ` \\" < > | ≈ γ′ ế ơ 中 [x] -- \\\\input{{x}}"
long = "&%_#$\\\\{{}}~^" * 20
columns = [Column(f"{{letters}} {{number}}", "kendall_tau") for number in range(9)]
rows = [Row({{letters: text, long: letters}}, {{"train.epochs": n}}) for n, text in enumerate((letters, long, "x"), 1)]
study = Study({NAME!r}, letters + long, rows, columns, figures=[Figure("%", letters, [Bars(letters, columns[0])])])
"""
LETTERS = {name: letter for letter, name in component("reports.render.latex_document").LETTERS.items()}

latex = component("reports.render.latex")
widths = component("reports.render.latex_widths")


def grid(
    headings: tuple[str, ...], rows: tuple[tuple[str, ...], ...], numeric: bool, notes: tuple[str, ...] = ()
) -> str:
    made = component("reports.grid").Grid("g", "Title", "Scale.", headings, rows, (numeric,) * len(headings), notes)
    return str(latex.render_grids([made]))


def tabulars(text: str) -> list[str]:
    return re.findall(r"\\begin\{tabular\}\{@\{\}(.*?)@\{\}\}\n", text)


def test_a_long_grid_is_several_floats() -> None:
    text = grid(("N",), tuple((str(number),) for number in range(100)), True, ("Note.",))
    assert text.count("\\begin{table}") == 2 and text.count("Note.") == 1
    assert text.count("Scale.") == 2, "what every float must say"
    assert re.findall(r"\\label\{(.*?)\}", text) == ["tab:g", "tab:g.2"] and text.count("(continued)") == 1
    lengths = [part.count("\\\\\n") for part in text.split("(continued)")]
    assert abs(lengths[0] - lengths[1]) < 6, "parts are of about equal length"


def test_notes_that_do_not_fit_a_page_are_counted() -> None:
    text = grid(("N",), (), True, ("x",) * 99)
    shown = text.count("    x\\par")
    assert f"\\dots{{}} and {99 - shown} more: the other formats list them all." in text and 10 < shown < 30


def test_a_wide_text_column_is_broken_and_nothing_is_scaled() -> None:
    text = grid(("Rows", "Verdict"), (("many words " * 40, "undecided"),), False)
    assert "resizebox" not in text and "\\begin{table*}" in text
    kinds = tabulars(text)[0]
    points = float(re.findall(r"p\{(.*?)pt\}", kinds)[0])
    assert kinds.endswith("l") and 300 < points < 495 - widths.width("undecided")


def test_rows_of_one_entry_share_it_unless_it_would_reach_beyond_them() -> None:
    said = grid(("A", "B"), (("x", "1"), ("x", "2"), ("words " * 200, "1"), ("words " * 200, "2")), False)
    assert said.count("\\multirow") == 1 and "\\multirow{2}{=}{x}" in said
    assert said.count("words words") == 100, "shown once"


def test_too_many_columns_stand_below_each_other_under_the_same_first_column() -> None:
    names = tuple(f"column {number}" for number in range(20))
    text = grid(("Row", *names), (("first", *("0.123 to 0.456",) * 20),), True)
    kinds = tabulars(text)
    assert len(kinds) == 3 and text.count("\\begin{table*}") == 1 and text.count("\\label") == 1
    assert text.count("first &") == 3 and sum(map(len, kinds)) == 20 + 3


def test_the_papers_widest_table_fits_a_page() -> None:
    """Three data sets with a mean and a deviation each for two metrics, memory and hours: Table 2."""
    values = component("reports.values")
    columns = [
        values.ValueColumn(name, "m", dataset, 3, "max")
        for dataset in ("cifar10", "cifar100", "imagenet16-120")
        for name in ("Kendall's τ", "Top-1 acc. (%)")
    ]
    columns += [values.ValueColumn(name, "m", "cifar10", 2, "min", once=True) for name in ("Peak memory (MB)", "Hours")]
    numbers = [(0.751, 0.76), (93.12, 93.5)] * 3 + [(1875, 1876), (16.04, 16.12)]
    digits = [3, 2] * 3 + [0, 2]
    shown = tuple(
        values.Value(
            tuple(values.Measurement(seed, one, "", "done") for seed, one in enumerate(those)), count, best=True
        )
        for those, count in zip(numbers, digits, strict=True)
    )
    rows = tuple(values.TableRow(("FairNAS", ours), shown, number) for number, ours in enumerate((False, True)))
    table = values.Table("t", "paper", "T", "S.", ("Method", "Ours"), 0, tuple(columns), (rows,), ())
    text = latex.render([table])
    assert tabulars(text) == ["lccccccccc"] and text.count("\\multicolumn{2}{c}") == 3
    assert "\\multirow{2}{*}{FairNAS} & -- &" in text


def test_a_word_that_is_wider_than_its_column_may_be_broken() -> None:
    assert list(widths.pieces("short", 60.0)) == ["short"]
    parts = list(widths.pieces("aaaaaaaaa/" * 5, 60.0))
    assert parts == ["aaaaaaaaa/"] * 5
    parts = list(widths.pieces("W" * 100, 60.0))
    assert "".join(parts) == "W" * 100 and all(widths.width(part) <= 60 for part in parts)
    assert widths.flowing("a_b", 60.0) == widths.running("a_b") == "a\\_b"
    assert all("_\\allowbreak \\_" in text for text in (widths.flowing("_" * 60, 60.0), widths.running("_" * 60)))


def hostile(folder: Path) -> Path:
    """A folder with the LaTeX of two studies: "main", and one with names that mean something to LaTeX."""
    with user_folder(folder, {"studies/main.py": MAIN, "studies/hostile.py": HOSTILE}):
        for name in ("main", NAME):
            for request in expand(find_studies(name)[0], get_preset("tiny"), 3):
                # The first row has the highest mean, but the seeds do not tell the second from it.
                tau = [[0.8, 0.4, 0.6], [0.5, 0.6, 0.4], [0.1, 0.1, 0.11]][request.row][request.seed]
                store_run(folder / "runs", request, tau)
        report = ["report", "main", NAME, "--preset", "tiny", "--seeds", "3", "--store", str(folder / "runs")]
        assert main([*report, "--format", "latex", "--compare", "--out", str(folder / "out")]) == 0
    return folder / "out"


def arguments(command: str, text: str) -> list[str]:
    """The arguments of a command in a text."""
    return re.findall(rf"\\{command}(?:\[.*?\])?\{{(.*?)\}}", text)


@pytest.mark.filterwarnings("ignore:Glyph", "ignore:constrained_layout")  # such names are not drawn well
def test_a_document_shows_everything_and_every_label_stands_once(tmp_path: Path) -> None:
    out = hostile(tmp_path)
    texts = {file.stem: file.read_text() for file in out.glob("*.tex")}
    parts = {f"{name}{part}" for name in ("main", NAME) for part in ("", "-figures", "-compared")}
    assert set(texts) == {*parts, "main-document"}, "a study of the document's name keeps its own"
    document = texts.pop("main-document")
    inputs = arguments("input", document)
    assert [name for name in inputs if name.startswith("main")] == ["main", "main-figures", "main-compared"]
    assert len(inputs) == len(parts)
    labels = arguments("label", "".join(texts.values()))
    assert len(set(labels)) == len(labels)
    assert sorted(label for label in labels if not re.search(r"\.\d$", label)) == sorted(arguments("ref", document))
    assert all(re.fullmatch(r"(tab|fig):[\w.+-]+", label) for label in labels)
    for text in texts.values():
        assert not any(len(caption) > 150 or "Preset" in caption for caption in arguments("caption", text))
        for drawing in arguments("includegraphics", text):
            name = re.sub(r"\\harness(\w+) ", lambda found: LETTERS[found[1]], drawing).replace("\\space ", " ")
            assert (out / name).read_bytes().startswith(b"%PDF")
    assert "$^{\\approx}$" in texts[NAME] and "\\begin{figure}" in texts["main-figures"]
