"""Rows across data sets and spaces: exact tests against every sign, groups against every stretch, in every format."""

from __future__ import annotations

import csv
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata, wilcoxon

from harness.cli import main
from harness.components.discovery import component
from harness.components.preset import get_preset
from harness.errors import InvalidConfiguration
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from tests.stored_runs import store_run
from tests.toy import user_folder

module = component("reports.across")
report = component("reports.report")

DATASETS = """
from harness.components.dataset import DataSet
from harness.components.registries import DATASETS

def copied(name):
    def load():
        whole = DATASETS.get("digits")()
        return DataSet(name, 10, whole.train, whole.valid, whole.test, whole.mean, whole.std)
    DATASETS.register(name)(load)

for number in range(6):
    copied(f"copy{number}")
"""
PRESETS = """
from dataclasses import replace
from harness.components.preset import get_preset, register

tiny = get_preset("tiny", "nasbench201")
judged = {"rank.truth": "digits"}
copies = tuple(f"copy{number}" for number in range(6))
register(replace(tiny, name="wide", benchmark="digits", datasets=copies, settings={**tiny.settings, **judged}))
register(replace(tiny, name="narrow", benchmark="digits", datasets=copies[:3], settings={**tiny.settings, **judged}))
darts = get_preset("tiny", "darts")
register(replace(darts, name="narrow", datasets=("digits", "digits-16")))
"""
MINE = """
from harness.study import Column, Row, Study

rows = [Row({"Method": name, "CaLR": calr}, {"method.name": name} | ({"schedule.name": "calr"} if calr else {}))
        for name in ("spos", "fairnas") for calr in (False, True)]
study = Study("mine", "Mine", rows, [Column("τ", "kendall_tau"), Column("Top-1", "top1_accuracy")])
"""
OTHER = """
from harness.study import Column, Row, Study

rows = [Row({"Method": name, "CaLR": False}, {"method.name": name, "space": "darts", "rank.valid_loss": True})
        for name in ("spos", "fairnas")]
study = Study("other", "Other", rows, [Column("Loss", "valid_loss", best="min")])
"""
TAU = {("spos", "cosine"): 0.3, ("spos", "calr"): 0.7, ("fairnas", "cosine"): 0.1, ("fairnas", "calr"): 0.5}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("across")
    renamed = OTHER.replace('"Method": name', '"Method": name.upper()')
    studies = {"mine.py": MINE, "other.py": OTHER, "renamed.py": renamed}
    with user_folder(folder, {"datasets/copies.py": DATASETS, "presets/wide.py": PRESETS, **studies}):
        fill("mine", "wide")
        fill("mine", "narrow")
        fill("other", "narrow")
        yield folder


def fill(name: str, preset: str, seeds: int = 2) -> None:
    (study,) = find_studies(f"{name}.py")
    for request in expand(study, get_preset(preset, study.about), seeds):
        config = request.trial.config
        if name == "other":
            store_run(
                Path("runs"),
                request,
                preset=preset,
                more={"valid_loss": {"spos": 1.5, "fairnas": 1.2}[config.method.name]},
            )
            continue
        tau = TAU[config.method.name, config.schedule.name] + 0.01 * request.seed
        if request.dataset == "copy2" and config.method.name == "fairnas":
            tau = 0.9 if config.schedule.name == "cosine" else 0.8
        store_run(Path("runs"), request, tau, preset=preset)


def compared(preset: str, *names: str) -> Any:
    sections = []
    for name in names:
        (study,) = find_studies(f"{name}.py")
        asked = report.Asked(get_preset(preset, study.about), 2, figures=False)
        sections.append(report.section(study, DirectoryStore(Path("runs")), asked))
    return module.across(sections)


def cells(grid: Any) -> list[dict[str, str]]:
    return [dict(zip(grid.headings, row, strict=True)) for row in grid.rows]


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=9))
def test_p_is_exact_over_every_sign_with_ties_and_zeros(differences: list[int]) -> None:
    values = [one for one in differences if one]
    ranks = rankdata(np.abs(values)) if values else []
    sums = [
        sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign)
        for signs in product((0, 1), repeat=len(values))
    ]
    mine = sum(rank for rank, value in zip(ranks, values, strict=True) if value > 0)
    low, high = (np.mean([one <= mine for one in sums]), np.mean([one >= mine for one in sums]))
    assert module.signed_rank(differences) == pytest.approx(min(1.0, 2 * min(low, high)))


def test_p_is_that_of_scipy_without_ties() -> None:
    rng = np.random.default_rng(0)
    for count in (5, 8, 20, 40):
        differences = rng.normal(0.3, 1, count)
        assert module.signed_rank(differences) == pytest.approx(wilcoxon(differences, method="exact").pvalue)


@given(st.integers(2, 6), st.data())
def test_groups_are_all_longest_stretches_without_a_difference(count: int, data: st.DataObject) -> None:
    pairs = list(combinations(range(count), 2))
    apart = {pair for pair in pairs if data.draw(st.booleans())}
    alike = [pair for pair in pairs if not apart & set(combinations(range(pair[0], pair[1] + 1), 2))]
    longest = [(a, b) for a, b in alike if not any((c, d) != (a, b) and c <= a and b <= d for c, d in alike)]
    assert list(module.cliques(count, apart)) == longest


def test_ranks_are_over_blocks_and_pairs_by_wilcoxon_with_holm(project: Path) -> None:
    found = compared("wide", "mine")
    ranks, pairs, values = map(cells, found.grids)
    # In five of six data sets CaLR of SPOS is the best; in copy2 both FairNAS are better than it.
    assert [(row["Row"], row["Mean rank"]) for row in ranks] == [
        ("spos + CaLR", "1.33"),
        ("fairnas + CaLR", "2.00"),
        ("spos", "3.17"),
        ("fairnas", "3.50"),
    ]
    by_pair = {(row["Row"], row["Other row"]): row for row in pairs}
    assert len(by_pair) == 6
    always = by_pair["spos + CaLR", "spos"]  # 6 of 6: the least p is 2/2⁶; Holm over 6 pairs
    assert (always["Blocks won : lost"], always["p (Wilcoxon)"], always["p (Holm)"], always["Differs"]) == (
        *("6 : 0", "0.0312", "0.1875"),
        "no",
    )
    assert by_pair["spos + CaLR", "fairnas"]["Blocks won : lost"] == "5 : 1"
    assert len(values) == 24 and {row["Value"] for row in values if row["Row"] == "spos"} == {"0.305"}
    assert {row["Rank"] for row in values if row["Data set"] == "copy2" and row["Row"] == "fairnas"} == {"1"}
    # Nothing can be decided by six blocks and six pairs: the figure has one bar and says so.
    (panel,) = found.figure.panels
    assert panel.groups == ((0, 3),) and panel.ranks == pytest.approx((8 / 6, 2, 19 / 6, 3.5))
    assert any("6 blocks decide nothing about 6 pairs: that needs 8 blocks" in note for note in found.figure.notes)


def test_a_pair_differs_where_the_blocks_decide_it(project: Path) -> None:
    (study,) = find_studies("mine.py")
    asked = report.Asked(get_preset("wide"), 2, where="method.name == 'spos'")
    found = module.across([report.section(study, DirectoryStore(Path("runs")), asked)])
    (pair,) = cells(found.grids[1])
    assert (pair["p (Holm)"], pair["Differs"]) == ("0.0312", "yes")
    assert found.figure.panels[0].groups == () and [
        row["Not distinguishable from"] for row in cells(found.grids[0])
    ] == ["–", "–"]


def test_studies_of_two_spaces_give_blocks_by_their_own_metrics(project: Path) -> None:
    found = compared("narrow", "mine", "other")
    values = cells(found.grids[2])
    assert {(row["Space"], row["Data set"], row["Column"]) for row in values} == {
        *(("nasbench201", f"copy{number}", "τ") for number in range(3)),
        *(("darts", name, "Loss") for name in ("digits", "digits-16")),
    }
    # Only rows that all blocks have; the lower loss is the better.
    assert [row["Row"] for row in cells(found.grids[0])] == ["fairnas", "spos"]
    assert {row["Rank"] for row in values if row["Space"] == "darts" and row["Row"] == "fairnas"} == {"1"}
    assert any("left out: spos + CaLR, fairnas + CaLR" in note for note in found.figure.notes)


def test_fewer_than_five_blocks_are_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidConfiguration, match=r"at least 5 blocks .*there are 3: copy0 \(nasbench201\), copy1"):
        compared("narrow", "mine")
    assert main(["report", "mine.py", "--preset", "narrow", "--across"]) == 2
    assert "at least 5 blocks" in capsys.readouterr().err


def test_rows_without_a_common_name_are_refused_with_what_there_is(project: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"all 5 blocks .* have; 0 of 6 is in all: .*spos in 3.*SPOS in 2"):
        compared("narrow", "mine", "renamed")


@pytest.mark.parametrize("form", ["markdown", "latex", "csv", "html"])
def test_every_format_has_the_diagram_and_its_tables(form: str, project: Path, tmp_path: Path) -> None:
    command = ["report", "mine.py", "--preset", "wide", "--seeds", "2", "--across", "--format", form]
    out = tmp_path / "out"
    assert main([*command, "--out", str(out)]) == 0
    assert {"across-diagram.svg", "across-diagram.pdf", "across-diagram.csv"} <= {file.name for file in out.iterdir()}
    with (out / "across-diagram.csv").open() as file:
        assert [row["label"] for row in csv.DictReader(file)] == ["spos + CaLR", "fairnas + CaLR", "spos", "fairnas"]
    if form == "html":
        page = (out / "index.html").read_text()
        assert "Pairs of rows across data sets and spaces" in page and 'id="figure-across-diagram"' in page
        assert "24 runs behind it" not in page and "48 runs behind it" in page  # of both seeds
    elif form == "latex":
        document = (out / "main.tex").read_text()
        for name in ("across-figures", "across-ranks", "across-pairs", "across-values"):
            assert f"\\input{{{name}}}" in document and (out / f"{name}.tex").is_file()
        assert "across-diagram.pdf" in (out / "across-figures.tex").read_text()
    else:
        suffix = {"markdown": "md", "csv": "csv"}[form]
        assert all(
            "spos + CaLR" in (out / f"across-{name}.{suffix}").read_text() for name in ("ranks", "pairs", "values")
        )


def test_the_tables_are_printed_and_the_figure_can_be_left_out(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "mine.py", "--preset", "wide", "--seeds", "2", "--across"]) == 0
    assert "Rows across data sets and spaces, by mean rank" in capsys.readouterr().out
    command = ["report", "mine.py", "--preset", "wide", "--seeds", "2", "--across", "--no-figures", "--format", "latex"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    names = {file.name for file in tmp_path.iterdir()}
    assert "across-ranks.tex" in names and not any(
        name.startswith(("across-diagram", "across-figures")) for name in names
    )
    assert "across-figures" not in (tmp_path / "main.tex").read_text()
