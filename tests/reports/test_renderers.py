"""Markdown, LaTeX and CSV against golden files (run with UPDATE_GOLDEN=1 to write them anew, and read them)."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.components.discovery import component
from harness.components.preset import Preset
from harness.documents import not_computed
from harness.stores.directory.store import DirectoryStore
from harness.study.expansion import expand
from harness.study.study import Study

FORMATS = [("markdown", "small.md"), ("latex", "small.tex"), ("csv", "small.csv")]


def build(study: Study, preset: Preset, store: Path, **options: Any) -> Any:
    return component("reports.tables").build(study, preset, DirectoryStore(store), **options)


@pytest.mark.parametrize(("renderer", "file"), FORMATS)
def test_renders_as_ever(
    renderer: str,
    file: str,
    study: Study,
    preset: Preset,
    tmp_path: Path,
    names: dict[str, str],
    golden: Callable[[str, str], None],
) -> None:
    missing = next(request.trial for request in expand(study, preset) if (request.row, request.seed) == (4, 0))
    for trial in (missing.key[:16], "0123456789abcdef"):  # the other is no business of this table
        damaged = tmp_path / "runs" / f"{trial}-1"
        damaged.mkdir()
        (damaged / "cell.json").write_text('{"half": ')
    names[f"{missing.key[:16]}-1"] = "run-4-0"
    module = component(f"reports.render.{renderer}")
    texts = [module.render([build(study, preset, tmp_path / "runs")]) for _ in range(2)]
    assert texts[0] == texts[1]
    golden(file, texts[0])


@pytest.mark.parametrize(("renderer", "suffix"), [("markdown", "md"), ("latex", "tex")])
def test_one_seed_has_no_deviation_and_no_group_no_multirow(
    renderer: str, suffix: str, study: Study, preset: Preset, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    plain = replace(study, group=None, rows=study.rows[:2], columns=study.columns[:1], paper="")
    table = build(plain, preset, tmp_path / "runs", seeds=1)
    assert table.notes == ()
    golden(f"one_seed.{suffix}", component(f"reports.render.{renderer}").render([table]))


@pytest.mark.parametrize(("renderer", "suffix"), [("markdown", "md"), ("latex", "tex"), ("csv", "csv")])
def test_several_data_sets_stand_side_by_side(
    renderer: str,
    suffix: str,
    toy_project: Path,
    study: Study,
    preset: Preset,
    tmp_path: Path,
    golden: Callable[[str, str], None],
) -> None:
    two = replace(preset, datasets=("digits", "toy"), seeds=1)
    short = replace(study, rows=study.rows[:2], columns=study.columns[:2])
    table = build(short, two, tmp_path / "runs")
    golden(f"two_datasets.{suffix}", component(f"reports.render.{renderer}").render([table]))


def test_several_studies_share_one_csv(study: Study, preset: Preset, tmp_path: Path) -> None:
    other = replace(study, name="other", group=None, rows=[replace(study.rows[0], labels={"Scale": "full"})])
    tables = [build(one, preset, tmp_path / "runs", seeds=1) for one in (study, other)]
    text = component("reports.render.csv").render(tables)
    header, *lines = text.splitlines()
    assert header.startswith("study,preset,row,source,reference,Method_name,CaLR,Scale,dataset")
    assert lines[0].startswith("small,tiny,0,runs,,SPOS,false,,digits")
    assert lines[-1].startswith("other,tiny,0,runs,,,,full,digits")


def test_latex_escapes_every_special_character() -> None:
    escape = component("reports.render.latex").escape
    assert escape(r"\a{b}$c&d#e^f_g%h~i") == (
        r"\textbackslash{}a\{b\}\$c\&d\#e\textasciicircum{}f\_g\%h\textasciitilde{}i"
    )
    assert escape("γ′ ± τ\nC³ –") == r"$\gamma'$ $\pm$ $\tau$ C$^{3}$ --"
    assert escape("2²⁰ 10⁻³ x²′ A₁² ²₁²") == r"2$^{20}$ 10$^{-3}$ x$^{2\prime}$ A$_{1}{}^{2}$ $^{2}{}_{1}{}^{2}$"
    assert escape("eˣ A₁ $γ 中é") == r"e$^{x}$ A$_{1}$ \$$\gamma$ [U+4E2D]\'{e}"
    assert escape("--seeds – ---") == "-{}-seeds -- -{}-{}-"
    assert escape("ế ß ơ `") == r"\'{\^{e}} \ss{} [U+01A1] \`{}"  # the last letter is in few fonts


def test_links_and_formulas_in_names_stay_text(study: Study, preset: Preset, tmp_path: Path) -> None:
    first, *rest = study.rows
    name = "[a](javascript:b) ![c][d] \u202e=e"
    changed = {key: name if place == 0 else value for place, (key, value) in enumerate(first.labels.items())}
    hostile = replace(study, title=name, rows=[replace(first, labels=changed), *rest], group=None, comparisons=None)
    text = component("reports.render.markdown").render([build(hostile, preset, tmp_path / "runs")])
    assert "[a\\](javascript:b) ![c\\][d] =e" in text and "](" not in text.replace("\\](", "")


@pytest.mark.parametrize("name", ["=1+1", "+cmd|'x'!A0", "-1+cmd|'x'!A0", "@SUM(1)"])
def test_a_spreadsheet_does_not_compute_names(name: str, study: Study, preset: Preset, tmp_path: Path) -> None:
    changed = [replace(row, labels={name: f"{name}{number}", **row.labels}) for number, row in enumerate(study.rows)]
    table = build(replace(study, rows=changed, comparisons=None), preset, tmp_path / "runs")
    lines = list(csv.DictReader(component("reports.render.csv").render([table]).splitlines()))
    assert {line[f"'{name}"][:-1] for line in lines} == {f"'{name}"}
    plain = build(study, preset, tmp_path / "runs")
    before = list(csv.DictReader(component("reports.render.csv").render([plain]).splitlines()))
    assert [line["value"] for line in lines] == [line["value"] for line in before]
    assert not_computed("-0.5") == "-0.5" and not_computed("+1e-3") == "+1e-3"
