"""A store that holds everything under the preset `official`: one training per row, judged by three truths."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np
import pytest

from harness.cli import main
from harness.components.discovery import component
from harness.components.preset import get_preset, presets_of
from harness.components.registries import SPACES
from harness.schema import UNRANKED, Cost, Ranked, Result
from harness.stores.directory.run_directory import predictions_document, write_ranking
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import all_studies, find_studies
from harness.study.curves import CURVES, JUDGED_BY
from harness.study.expansion import expand
from harness.study.study import Request, Study
from harness.truth.imported import AccuracyTable
from harness.work.states import stand
from tests.stored_runs import store_run

DATASETS = ("cifar10", "cifar100", "imagenet16-120")


@pytest.fixture
def truth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up accuracies on the three data sets; an empty store."""
    chance, size = np.random.default_rng(7), SPACES.get("nasbench201")().size
    columns = {(name, split): chance.uniform(5, 90, size) for name in DATASETS for split in ("valid", "test")}
    AccuracyTable(columns, {"space": "nasbench201"}).write(tmp_path / "nasbench201.npz")
    monkeypatch.setenv("HARNESS_BENCHMARKS", str(tmp_path))
    monkeypatch.setenv("HARNESS_STORE", str(tmp_path / "runs"))
    monkeypatch.setattr(os, "fsync", lambda file: None)  # hundreds of files, none of which must survive anything


@cache
def filled(kind: Any) -> Any:
    """Some value of a stored type."""
    if is_typeddict(kind):
        left_out = ("diverged", "observed", "found", "scored")
        return {key: filled(hint) for key, hint in get_type_hints(kind).items() if key not in left_out}
    if get_origin(kind) is list:
        return [3] * 6
    if get_origin(kind) is dict:
        return {"train": 3600}
    return filled(get_args(kind)[0]) if get_args(kind) else {int: 3, float: 0.5}.get(kind, "text")


def fill(store: Path, studies: Sequence[Study]) -> None:
    """Store a run of every trial, ranked by every truth that judges it, with all curves that are asked for."""
    trials: dict[str, list[Request]] = {}
    for study in studies:
        for request in expand(study, get_preset("official", study.about), 1):
            trials.setdefault(request.trial.key, []).append(request)
    for requests in trials.values():
        own = stand("", requests, []).trial
        others = {one.trial.ranking_key: one for one in requests if one.trial.ranking_key != own.ranking_key}
        observed = {
            curve.name.replace("*", part) + end: [[1, 0.25], [2, 0.5]]
            for curve in CURVES
            if getattr(own.config.observe, curve.setting.removeprefix("observe."))
            for part in curve.ends or "0123"
            for end in (["", *(JUDGED_BY + key for key in others)] if curve.judged else [""])
        }
        more = filled(Result) | dict.fromkeys(own.config.rank.left_out)
        first = replace(requests[0], trial=own)
        run = store_run(store, first, 0.5, preset="official", more=more, observed=observed, cost=filled(Cost))
        for key, request in others.items():
            config = request.trial.config
            result = {**UNRANKED, **filled(Ranked)} | dict.fromkeys(config.rank.left_out)
            folder = DirectoryStore(store).path_of(run)
            write_ranking(folder, key, config.json(), result, {}, predictions_document(config.json(), {}))


@pytest.mark.usefixtures("truth")
@pytest.mark.parametrize(
    "names", [("training_curves", "sota"), pytest.param((), marks=pytest.mark.long)], ids=["two", "all"]
)
def test_a_complete_store_is_complete(names: tuple[str, ...], tmp_path: Path) -> None:
    """Tables and figures: `--strict` finds nothing missing, and takes away what was there if something is."""
    every = [study for study in all_studies() if "official" in presets_of(study.about)]
    studies = [study for name in names for study in find_studies(name)] or every
    fill(tmp_path / "runs", studies)
    report, opened = component("reports.report"), DirectoryStore(tmp_path / "runs")
    asked = {"seeds": 1, "figures": True}
    for study in studies:
        section = report.section(study, opened, report.Asked(get_preset("official", study.about), **asked))
        report.require_complete([section], "the store")
        shown = [row for block in section.table.blocks for row in block]
        assert shown and all(any(value.mean for value in row.values) for row in shown)
        own = [figure for figure in section.figures if not figure.name.startswith("anytime")]
        if study.name == "sota":  # its values of the literature are top-1, which is not computed here
            assert "Top-1 acc. (%) is not computed here." in section.table.notes and not own
            assert all(row.source == "runs" for row in shown)
        if study.name == "training_curves":
            drawn = [panel for figure in own for panel in figure.panels]
            assert len(drawn) == 5 * len(DATASETS) and all(panel.curves for panel in drawn)
    asked_for = [study.name for study in studies]
    assert main(["report", *asked_for, "--preset", "official", "--strict", "--seeds", "1"]) == 0
    assert main(["report", asked_for[0], "--preset", "official", "--strict", "--seeds", "2"]) == 1
