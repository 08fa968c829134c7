"""Everything that a layout can say, in tables: other sources, scales, substitutes, references, shades."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from harness.components.benchmark import Benchmark
from harness.components.discovery import component
from harness.components.preset import Preset
from harness.components.registries import BENCHMARKS, SPACES
from harness.errors import HarnessError, UserError
from harness.stores.directory.store import DirectoryStore
from harness.study.expansion import expand
from harness.study.layout import Column, Row
from harness.study.study import Study
from tests.stored_runs import store_run

RENDERERS = [("markdown", "md"), ("latex", "tex"), ("csv", "csv"), ("html", "html")]

STUDY = Study(
    name="sota",  # whose rows the paper has
    title="Everything",
    rows=[
        Row({"Method": "SPOS", "Ours": False}, {"method.name": "spos"}),
        Row({"Method": "SPOS", "Ours": True}, {"schedule.name": "calr"}, shaded=True, metrics={"bias": "other_bias"}),
        Row({"Method": "DARTS", "Ours": False}, source="paper"),
        Row({"Method": "GDAS", "Ours": False}, source="paper"),
        Row({"Method": "Optimal", "Ours": False}, source="truth"),
    ],
    group="Method",
    columns=[
        Column("Memory (MB)", "peak_memory_bytes", digits=0, best="min", scale=2**-20, each_dataset=False),
        Column("Top-1 (%)", "top1_accuracy", digits=2),
        Column("CB", "bias", best="nearest", reference="neutral", remark="Ties count one half."),
        Column("Hours", "stage_seconds.train", digits=2, best=None, scale=1 / 3600, each_dataset=False),
    ],
)


class Fixed(Benchmark):
    """Made-up accuracies for a data set of the paper."""

    name, datasets = "cifar10", ("cifar10",)

    def __init__(self) -> None:
        self.space = SPACES.get("nasbench201")()

    def accuracies(self, dataset: str, split: str = "test") -> npt.NDArray[np.float64]:
        return np.linspace(10.0, 94.37, self.space.size)


@pytest.fixture
def paper_data() -> Iterator[None]:
    """A truth for CIFAR-10."""
    BENCHMARKS.register("cifar10")(Fixed)
    yield
    del BENCHMARKS.entries["cifar10"]


@pytest.fixture
def both(preset: Preset) -> Preset:
    return replace(preset, datasets=("digits", "cifar10"), seeds=2)


@pytest.fixture
def store(tmp_path: Path, both: Preset, paper_data: None) -> Path:
    """All runs on the digits but one; none on CIFAR-10."""
    for request in expand(STUDY, both):
        if request.dataset == "digits" and (request.row, request.seed) != (1, 1):
            store_run(
                tmp_path,
                request,
                0.5,
                60.0 + request.row,
                more={"bias": 0.6, "other_bias": 0.53, "neutral": 0.512 + request.seed / 1000},
                cost={"peak_memory_bytes": (100 + request.row) << 20, "stage_seconds": {"train": 5400.0}},
            )
    return tmp_path


def build(study: Study, preset: Preset, store: Path, **options: Any) -> Any:
    return component("reports.tables").build(study, preset, DirectoryStore(store), **options)


def shown(table: Any) -> list[list[str]]:
    return [[value.mean + value.mark for value in row.values] for block in table.blocks for row in block]


@pytest.mark.parametrize(("renderer", "suffix"), RENDERERS)
def test_renders_all_that_a_layout_can_say(
    renderer: str, suffix: str, both: Preset, store: Path, names: dict[str, str], golden: Callable[[str, str], None]
) -> None:
    for number, run in enumerate(DirectoryStore(store).runs()):
        names[run.id] = f"run-{run.trial['config']['schedule']['name']}-{run.trial['config']['seed']}"
        assert number < 3
    table = build(STUDY, both, store)
    module = component(f"reports.render.{renderer}")
    golden(f"layout.{suffix}", (module.render_tables if suffix == "html" else module.render)([table]))


@pytest.mark.parametrize(("renderer", "suffix"), RENDERERS)
def test_renders_grids(renderer: str, suffix: str, golden: Callable[[str, str], None]) -> None:
    grid = component("reports.grid").Grid
    long = "CaLR raises Kendall's τ over the baseline <at 50 %> | on *every* data set & with every method"
    grids = [
        grid("one", "Claims", "Preset tiny.", ("Claim", "Effect"), ((long, "−0.012"), ("Short", "—")), (False, True)),
        grid("two", "Numbers", "Preset tiny.", ("γ′", "Effect"), (("2", "0.5 ± 0.1"),), (True, True), ("One seed.",)),
        grid("three", "Nothing", "Preset tiny.", ("Claim",), (), (False,)),
    ]
    golden(f"grids.{suffix}", component(f"reports.render.{renderer}").render_grids(grids))


def test_sources_scales_substitutes_and_dotted_metrics(both: Preset, store: Path) -> None:
    table = build(STUDY, both, store)
    assert [(column.label, column.dataset) for column in table.columns] == [
        *[("Top-1 (%)", "digits"), ("CB", "digits"), ("Top-1 (%)", "cifar10"), ("CB", "cifar10")],
        *[("Memory (MB)", "digits"), ("Hours", "digits")],
    ]
    best = f"{np.max(BENCHMARKS.get('digits')().accuracies('digits')):.2f}"
    assert shown(table) == [
        ["60.00", "0.600", "", "", "100", "1.50"],
        ["61.00", "0.530", "", "", "101", "1.50"],
        ["", "", "86.23†", "", "", ""],
        ["", "", "93.26†", "", "", ""],
        [best, "", "94.37", "", "", ""],
    ]
    assert [row.shaded for block in table.blocks for row in block] == [False, True, False, False, False]
    # One seed of two does not compete with two of two, nor does what was not measured with anything.
    assert not any(value.best for block in table.blocks for row in block for value in row.values)
    text = "\n".join(table.notes)
    assert "CB: The neutral value is 0.512 to 0.513 on digits, not known on cifar10. Ties count one half.\n" in text
    assert "† Quoted from the paper (Table A); not measured here." in text
    assert "Optimal: the best accuracy that the ground truth holds, no run." in text


def test_the_nearest_to_its_reference_is_bold(both: Preset, store: Path) -> None:
    one = replace(both, datasets=("digits",), seeds=1)
    bold = [[value.best for value in row.values] for row in build(STUDY, one, store).blocks[0]]
    assert bold == [[False, False, True, False], [True, True, False, False]]
    fixed = replace(STUDY, columns=[Column("CB", "bias", best="nearest", reference=0.565)])
    assert [row.values[0].best for row in build(fixed, one, store).blocks[0]] == [True, True]


def test_a_condition_is_on_runs_and_leaves_out_what_is_none(both: Preset, store: Path) -> None:
    table = build(STUDY, both, store, where="schedule.name == 'calr'")
    assert [row.labels for block in table.blocks for row in block] == [("SPOS", True)]


def test_what_is_missing_is_told_line_by_line(both: Preset, store: Path) -> None:
    missing = build(STUDY, both, store).missing
    assert "SPOS, Ours, digits: Top-1 (%) (1 of 2 seeds)" in missing
    assert "SPOS, no Ours, cifar10: CB (0 of 2 seeds)" in missing
    assert len(missing) == 2 * 2 + 4
    report = component("reports.report")
    sections = [report.section(STUDY, DirectoryStore(store), report.Asked(both))]
    with pytest.raises(HarnessError, match=r"nothing was reported(.|\n)*sota: SPOS, Ours, digits: Top-1") as raised:
        report.require_complete(sections, "runs")
    assert not isinstance(raised.value, UserError)
    one = report.section(STUDY, DirectoryStore(store), report.Asked(replace(both, datasets=("digits",), seeds=1)))
    report.require_complete([one], "runs")


def test_where_the_paper_has_no_such_data_set_its_cifar10_is_quoted_and_named(both: Preset, store: Path) -> None:
    table = build(STUDY, replace(both, datasets=("digits",)), store)
    assert [row[0] for row in shown(table)][2:4] == ["86.23†", "93.26†"]
    (note,) = [note for note in table.notes if note.startswith("†")]
    assert note == (
        "† Quoted from the paper (Table A, on cifar10); not measured here, and not comparable with other data sets."
    )


def test_parquet_holds_what_csv_holds(both: Preset, store: Path, tmp_path: Path) -> None:
    import pandas

    table = build(STUDY, both, store)
    encoded = component("reports.render.csv").parquet([table])
    assert encoded == component("reports.render.csv").parquet([table])
    (tmp_path / "table.parquet").write_bytes(encoded)
    (tmp_path / "table.csv").write_text(component("reports.render.csv").render([table]))
    typed, plain = pandas.read_parquet(tmp_path / "table.parquet"), pandas.read_csv(tmp_path / "table.csv")
    assert list(typed.columns) == list(plain.columns) and len(typed) == len(plain)
    assert typed["value"].equals(plain["value"]) and typed["deviation"].equals(plain["deviation"])


def test_without_pyarrow_it_is_asked_for(both: Preset, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"nas-harness\[parquet\]"):
        component("reports.render.csv").parquet([build(STUDY, both, store)])
