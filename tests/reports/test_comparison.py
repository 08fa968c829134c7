"""Ours beside the paper's, and the statements judged, as grids of text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.components.discovery import component
from harness.components.preset import Preset
from harness.components.registries import BENCHMARKS
from harness.statistics import seeds_needed
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.layout import Column, Comparison, Row
from harness.study.study import Study
from tests.reports.test_layouts import Fixed
from tests.stored_runs import store_run

report: Any = component("reports.report")
words: Any = component("reports.words")

SPOS = {"Method": "SPOS"}
ABLATION = replace(
    find_studies("ablation_calr_ms")[0],
    rows=find_studies("ablation_calr_ms")[0].rows[:2],
    group=None,  # rows without groups are paired by seed
    factors=(),
    primary=(),
)
CLUSTERS = Study(
    "num_clusters",
    "Clusters",
    [Row(SPOS | {"Clusters": str(n)}, {"train.epochs": epochs}) for epochs, n in enumerate((5, 25), 1)],
    [
        Column("Kendall's τ", "kendall_tau"),
        Column("Memory (MB)", "training_memory_bytes", digits=0, scale=2**-20, each_dataset=False),
    ],
    paper="Table 6",
)

SOURCES = Study(
    "sota",
    "Sources",
    [
        Row(SPOS | {"Ours": True}),
        Row({"Method": "DARTS", "Ours": False}, source="paper"),
        Row({"Method": "Optimal", "Ours": False}, source="truth"),
    ],
    [Column("Top-1 (%)", "top1_accuracy", digits=1)],
)


def build(study: Study, preset: Preset, store: Path, **options: Any) -> dict[str, Any]:
    asked = report.Asked(preset, compare=True, **options)
    (section,) = report.judged([report.section(study, DirectoryStore(store), asked)])
    return {grid.name: grid for grid in section.grids}


def column(grid: Any, heading: str) -> list[str]:
    return [row[grid.headings.index(heading)] for row in grid.rows]


def fill(store: Path, study: Study, preset: Preset, taus: Mapping[int, Sequence[float | None]], **options: Any) -> None:
    """Store runs: for each row, a τ a seed; None for none."""
    for request in expand(study, preset):
        tau = taus[request.row][request.seed]
        if tau is not None:
            store_run(
                store, request, tau, 60.0 + request.row, cost={"training_memory_bytes": (100 + request.row) << 20}
            )


def test_ours_and_the_papers_without_a_difference_between_unlike_data(preset: Preset, tmp_path: Path) -> None:
    fill(tmp_path, ABLATION, preset, {0: [0.50, 0.51, 0.52], 1: [0.61, None, 0.60]})
    grid = build(ABLATION, preset, tmp_path)["ablation_calr_ms-paper"]
    assert grid.headings == (*("Method", "CaLR", "MS", "Data set", "Metric", "Ours", "Seeds", "Paper (cifar10)"),)
    assert grid.rows == (
        ("SPOS", "–", "–", "digits", "Kendall's τ", "0.510 ± 0.010", "3", "0.751"),
        ("SPOS", "–", "–", "digits", "Top-1 acc. (%)", "60.00 ± 0.00", "3", "93.12"),
        ("SPOS", "✓", "–", "digits", "Kendall's τ", "0.605 ± 0.007", "2 of 3", "0.805"),
        ("SPOS", "✓", "–", "digits", "Top-1 acc. (%)", "61.00 ± 0.00", "2 of 3", "93.3"),
    )
    assert grid.notes[:2] == (
        "The paper has no digits: the values next to ours are those on cifar10.",
        "Differences are shown where data set and preset are the paper's.",
    )
    assert "SPOS, CaLR, no MS, seed 1: missing" in grid.notes


def test_the_scale_stands_over_both_grids(preset: Preset, tmp_path: Path) -> None:
    grids = build(ABLATION, preset, tmp_path, seeds=2, overrides={"train.epochs": 3})
    assert list(grids) == ["ablation_calr_ms-paper", "ablation_calr_ms-statements"]  # the statements cover all rows
    for grid in grids.values():
        assert grid.scale.startswith("Preset tiny: digits, 2 seeds, 3 epochs, width 4")
        assert "with train.epochs=3" in grid.caption


def test_an_empty_store_shows_dashes_and_no_data(preset: Preset, tmp_path: Path) -> None:
    grids = build(ABLATION, preset, tmp_path)
    numbers, statements = grids.values()
    assert set(column(numbers, "Ours")) == {"–"}
    assert set(column(numbers, "Seeds")) == {"0 of 3"}
    assert column(numbers, "Paper (cifar10)") == ["0.751", "93.12", "0.805", "93.3"]
    assert set(column(statements, "Verdict")) == {"no data"}


@pytest.mark.parametrize(
    ("calr", "effect", "interval", "verdict"),
    [
        ([0.55, 0.559, 0.57], "+0.050", "+0.048 to +0.051", "supported"),
        ([0.55, 0.54, 0.56], "+0.040", "+0.015 to +0.065", "undecided, leans supported"),
        ([0.55, 0.50, 0.56], "+0.027", "-0.053 to +0.107", "undecided"),
        ([0.45, 0.459, 0.47], "-0.050", "-0.052 to -0.049", "contradicted"),
        ([0.5004, 0.5101, 0.5202], "+0.0002", "-0.0001 to +0.0006", "undecided"),
        ([0.90, None, None], "+0.400", "–", "undecided"),
    ],
)
def test_made_up_stores_decide_a_statement(
    calr: list[float | None], effect: str, interval: str, verdict: str, preset: Preset, tmp_path: Path
) -> None:
    more = replace(ABLATION, rows=find_studies("ablation_calr_ms")[0].rows[:3], factors=(), primary=())
    fill(tmp_path, more, preset, {0: [0.50, 0.51, 0.52], 1: calr, 2: [0.4, 0.6, 0.5]})
    grid = build(more, preset, tmp_path)["ablation_calr_ms-statements"]
    seeds = str(sum(tau is not None for tau in calr))
    assert grid.shown.rows[0] == (
        *("CaLR alone raises Kendall's τ over the baseline.", verdict, effect, interval),
        *("SPOS, no MS: CaLR against no CaLR", "digits", "+0.054", seeds),
    )
    assert grid.shown.headings[:4] == ("Statement", "Verdict", "Effect", "95 % interval")
    assert len(grid.headings) == len(grid.shown.headings) + grid.details


def test_what_a_verdict_rests_on_stands_behind_it(preset: Preset, tmp_path: Path) -> None:
    fill(tmp_path, ABLATION, preset, {0: [0.50, 0.51, 0.52], 1: [0.55, 0.54, 0.56]})
    grid = build(ABLATION, preset, tmp_path, margins={"": 0.01})["ablation_calr_ms-statements"]
    row = dict(zip(grid.headings, grid.rows[0], strict=True))
    assert {name: row[name] for name in grid.headings[-grid.details :]} == {
        "Where": "Table 3",
        "Test": "paired t-test",
        "p": "0.020",
        "p after Holm": "0.040",
        "Sign-flip p": "0.250",
        "Least p": "0.250",
        "Detectable (80 %)": "0.031",
        "Probability of improvement": "1.00",
        "e-value": "3.37",
        "Margin": "0.01",
        "By group and seed": "–",
    }


def test_the_verdicts_are_counted_and_the_caption_says_what_they_are_worth(preset: Preset, tmp_path: Path) -> None:
    fill(tmp_path, ABLATION, preset, {0: [0.50, 0.51, 0.52], 1: [0.55, 0.559, 0.57]})
    grid = build(ABLATION, preset, tmp_path)["ablation_calr_ms-statements"]
    assert grid.notes[0] == "Of 2 comparisons: 1 supported, 0 contradicted, 0 equivalent, 1 undecided, 0 no data."
    assert "The paper has no digits: the paper's effect is that on cifar10." in grid.notes
    assert "95 % t interval of the effect" in grid.caption
    assert "by Holm's rule, at 5 % for m = 2 comparisons of this study" in grid.caption
    fewer = build(ABLATION, preset, tmp_path, seeds=2)["ablation_calr_ms-statements"]
    assert "95 % confidence sequence" in fewer.caption
    assert column(fewer, "Seeds") == ["2 (anytime)"] * 2
    assert set(column(fewer, "95 % interval")) == {"unbounded"}


def test_every_study_of_a_report_is_a_family_of_its_own(preset: Preset, tmp_path: Path) -> None:
    fill(tmp_path, ABLATION, preset, {0: [0.50, 0.51, 0.52], 1: [0.55, 0.559, 0.57]})
    mine, asked = replace(ABLATION, name="mine"), report.Asked(preset, compare=True)
    sections = report.judged([report.section(one, DirectoryStore(tmp_path), asked) for one in (ABLATION, mine)])
    assert [one.m for section in sections for one in section.judgements] == [2, 2, 1]


def test_a_latex_document_has_the_order_of_the_paper(preset: Preset, tmp_path: Path) -> None:
    asked = report.Asked(preset)
    sections = [report.section(study, DirectoryStore(tmp_path), asked) for study in (CLUSTERS, ABLATION)]
    text = component("reports.render.latex_document").document(sections)
    assert 0 < text.index("\\input{ablation_calr_ms}") < text.index("\\input{num_clusters}")


def test_units_remarks_and_what_stands_once(preset: Preset, tmp_path: Path) -> None:
    single = replace(preset, seeds=1)
    fill(tmp_path, CLUSTERS, single, {0: [0.7], 1: [0.8]})
    one = build(CLUSTERS, single, tmp_path)
    rows = [row[-3:] for row in one["num_clusters-paper"].rows]
    assert rows == [
        ("0.700", "1", "0.81 ± 0.024"),
        ("100", "1", "1901"),
        ("0.800", "1", "0.813 ± 0.017"),
        ("101", "1", "2187"),
    ]
    assert any("Table 6: Kept as printed" in note for note in one["num_clusters-paper"].notes)
    assert column(one["num_clusters-statements"], "Effect") == ["+0.100", "+1"]
    assert set(column(one["num_clusters-statements"], "Verdict")) == {"undecided"}
    several = build(CLUSTERS, preset, tmp_path)["num_clusters-statements"]
    assert several.scale.endswith("Interval and verdict: none, for want of seeds.")
    assert column(one["num_clusters-statements"], "Rows")[0] == "SPOS: Clusters = 25 against Clusters = 5"


@pytest.fixture
def both(preset: Preset) -> Iterator[Preset]:
    """A preset with a data set that the paper has, and one that it has not."""
    BENCHMARKS.register("cifar10")(Fixed)
    yield replace(preset, datasets=("digits", "cifar10"), seeds=2)
    del BENCHMARKS.entries["cifar10"]


def test_rows_of_other_sources(both: Preset, tmp_path: Path) -> None:
    for request in expand(SOURCES, both):
        store_run(tmp_path, request, 0.5, 94.4 + 0.1 * request.seed)
    grids = build(SOURCES, replace(both, name="paper"), tmp_path)  # the paper's scale
    numbers, statements = grids["sota-paper"], grids["sota-statements"]
    best = numbers.rows[-2][-4]
    assert [(row[0], row[2], *row[-4:]) for row in numbers.rows] == [
        ("SPOS", "digits", "94.5 ± 0.1", "2", "93.50 ± 0.33", "–"),
        ("SPOS", "cifar10", "94.5 ± 0.1", "2", "93.50 ± 0.33", "+1.0"),
        ("DARTS", "digits", "–", "–", "86.23 ± 4.93", "–"),
        ("DARTS", "cifar10", "–", "–", "86.23 ± 4.93", "–"),
        # The best that the ground truth holds; Table A does not print it.
        ("Optimal", "digits", best, "–", "–", "–"),
        ("Optimal", "cifar10", "94.4", "–", "–", "–"),
    ]
    assert 50 < float(best) < 100
    assert numbers.headings[-2:] == ("Paper (or its cifar10)", "Difference")
    # A quoted value of CIFAR-10 says nothing of the digits.
    told = zip(*(column(statements, heading) for heading in ("Data set", "Effect", "Verdict")), strict=True)
    assert list(told) == [("digits", "–", "no data"), ("cifar10", "+8.2", "supported")]
    assert any(note.startswith("Quoted rows are compared on data sets of the paper only") for note in statements.notes)


def test_another_neutral_value_than_the_papers_is_told(preset: Preset, tmp_path: Path) -> None:
    rows = [Row(SPOS | {"CaLR": False, "γ(α) ∝": "–"})]
    bias = Column("CB", "complexity_bias", best="nearest", reference="neutral_complexity_bias")
    known = build(Study("unfairness", "CB", rows, [bias]), preset, tmp_path)["unfairness-statements"]
    assert "CB: the paper takes 0.5 for neutral, and so does the paper's effect" in "".join(known.notes)
    same = build(Study("unfairness", "CB", rows, [replace(bias, reference=0.5)]), preset, tmp_path)
    assert "for neutral" not in "".join(same["unfairness-statements"].notes)


def test_a_study_that_is_not_the_papers_compares_its_rows(preset: Preset, tmp_path: Path) -> None:
    mine = replace(ABLATION, name="mine")
    fill(tmp_path, mine, preset, {0: [0.50, 0.51, 0.52], 1: [0.55, 0.559, 0.57]})
    grids = build(mine, preset, tmp_path)
    assert list(grids) == ["mine-comparisons"]
    (row,) = grids["mine-comparisons"].shown.rows
    words = "SPOS, no MS: CaLR against no CaLR"
    assert row == (words, "supported", "+0.050", "+0.048 to +0.051", "Kendall's τ", "digits", "–", "3")


def test_the_effects_of_crossed_factors_have_a_grid(preset: Preset, tmp_path: Path) -> None:
    rows = find_studies("ablation_calr_ms")[0].rows[:4]
    crossed = replace(ABLATION, name="mine", rows=rows, factors=("CaLR", "MS"), columns=ABLATION.columns[:1])
    fill(tmp_path, crossed, preset, {row: [0.5 + 0.1 * (row % 2) + seed / 50 for seed in range(3)] for row in range(4)})
    grid = build(crossed, preset, tmp_path)["mine-effects"]
    assert list(zip(column(grid, "Factor"), column(grid, "Effect"), strict=True)) == [
        ("CaLR", "+0.100"),
        ("MS", "0.000"),
        ("CaLR × MS", "0.000"),
    ]


def test_the_same_store_gives_the_same_grids(preset: Preset, tmp_path: Path) -> None:
    fill(tmp_path, ABLATION, preset, {0: [0.50, 0.51, 0.52], 1: [0.61, None, 0.60]})
    assert build(ABLATION, preset, tmp_path) == build(ABLATION, preset, tmp_path)


def test_rows_in_words() -> None:
    statements = {statement.id: statement for statement in component("reports.paper.statements").statements()}

    def rows(name: str, pair: int = 0) -> str:
        return str(words.in_words(statements[name].pairs[pair]))

    assert rows("momentum-fairnas-loses-least") == (
        "no MS: (FairNAS, β = 0.9 less FairNAS, β = 0) against (SPOS, β = 0.9 less SPOS, β = 0)"
    )
    assert rows("unfair-baseline-cb") == "SPOS, no CaLR"
    assert rows("similar-gradients") == "A₁ against A₃"
    assert rows("clustering-operation") == "SPOS: MS, Operation-based against no MS"
    assert rows("gamma-4-best") == "SPOS, CaLR, MS: γ′ = 4 against γ′ = 3"
    assert rows("curves-accuracy-unfair") == ("SPOS, no CaLR, no MS: valid_accuracy_large against valid_accuracy_small")
    assert rows("curves-calr-fairer") == (
        "SPOS, no MS: (CaLR, valid_accuracy_large less CaLR, valid_accuracy_small) "
        "against (no CaLR, valid_accuracy_large less no CaLR, valid_accuracy_small)"
    )
    assert rows("decay-log-best") == "SPOS, CaLR, MS: log x against x"


def test_a_grid_of_uneven_rows_is_a_mistake() -> None:
    grid = component("reports.grid").Grid
    with pytest.raises(ValueError, match="differ in width"):
        grid("g", "t", "s", ("a", "b"), (("1",),), (True, True))
    assert grid("g", "Title", "Scale.", ("a",), (), (True,)).caption == "Title. Scale."


def sentence(study: Study, preset: Preset, store: Path, **options: Any) -> list[str]:
    """The sentences of a study, and what the table's first notes are."""
    asked = report.Asked(preset, compare=True, **options)
    (section,) = report.judged([report.section(study, DirectoryStore(store), asked)])
    texts = [one.text for one in section.sentences]
    assert list(section.table.notes[: len(texts)]) == texts
    (judged, *_) = section.judgements
    tidy = component("reports.render.csv").render_judgements(section.findings, section.judgements)
    more = next(csv.DictReader(io.StringIO(tidy)))["more_seeds"]
    known = judged.seeds_for(options.get("margins", {}).get("", 0.05))
    assert more == ("" if known is None or judged.decided else str(max(0, known - len(judged.compared.seeds))))
    return texts


def test_a_sentence_says_what_was_found_and_how_many_seeds_would_decide(preset: Preset, tmp_path: Path) -> None:
    """Effects of 0.02, 0.05 and 0.08: their deviation is 0.03."""
    own = replace(ABLATION, name="mine", primary=(Comparison({"CaLR": True}, {"CaLR": False}, ""),))
    fill(tmp_path / "runs", own, preset, {0: [0.50, 0.50, 0.50], 1: [0.52, 0.55, 0.58]})
    found = "CaLR against no CaLR improved Kendall's τ by 0.050 (-0.025 to 0.125, 3 seeds) on digits: undecided; with "
    needed = seeds_needed(0.05 / 0.03, 0.8, 0.05)
    assert needed is not None and needed > 3
    assert sentence(own, preset, tmp_path / "runs") == [
        f"{found}{needed - 3} more seeds an effect of 0.05 would be decided with 80 % probability."
    ]
    (rough,) = sentence(own, preset, tmp_path / "runs", margins={"": 0.02})
    assert f"with {(seeds_needed(0.02 / 0.03, 0.8, 0.05) or 0) - 3} more seeds an effect of 0.02" in rough
    (large,) = sentence(own, preset, tmp_path / "runs", margins={"": 0.4})  # decided: the effect is below it
    assert large.endswith(": equivalent.")
    (single,) = sentence(own, replace(preset, seeds=1), tmp_path / "runs")
    assert single.endswith("by 0.020 (1 seed) on digits: undecided; one seed decides nothing.")
    fill(tmp_path / "worse", own, preset, {0: [0.52, 0.55, 0.58], 1: [0.50, 0.50, 0.50]})
    assert sentence(own, preset, tmp_path / "worse")[0].startswith(found.replace("improved", "worsened"))
    assert sentence(own, preset, tmp_path / "empty") == ["CaLR against no CaLR: no data on digits yet."]


def test_a_study_without_primary_contrasts_has_a_sentence_for_all(preset: Preset, tmp_path: Path) -> None:
    own = replace(ABLATION, name="mine")
    fill(tmp_path, own, preset, {0: [0.50, 0.50, 0.50], 1: [0.40, 0.55, 0.58]})
    assert sentence(own, preset, tmp_path) == ["No difference between rows is decided with 3 seeds."]
