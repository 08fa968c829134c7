"""What studies call trials and stored runs: the same words in progress lines and in lists of runs."""

from __future__ import annotations

from pathlib import Path

from harness.components.preset import get_preset
from harness.study.catalogue import find_studies
from harness.study.expansion import expand, parents
from harness.study.naming import namings
from harness.work.plan import make_plan
from tests.stored_runs import store_run

TINY = get_preset("tiny")


def test_a_trial_is_named_as_its_progress_line_names_it(tmp_path: Path) -> None:
    names = ("num_clusters", "ablation_calr_ms", "retrain_scheduler")
    plan = make_plan([study for name in names for study in find_studies(name)], TINY, [], seeds=1)
    for work in plan.work:
        assert work.naming is not None
        study, row = next(iter(work.naming["rows"].items()))
        assert work.label.startswith(f"{study}/{row} seed 0")
        assert set(work.naming["rows"]) == {request.study for request in work.requests}
        assert work.naming["ranking"] == work.named.trial.ranking_key
    shared = [work.naming for work in plan.work if len({one.study for one in work.requests}) > 1]
    assert shared and all(one is not None and len(one["rows"]) > 1 for one in shared)


def test_stored_runs_are_named_by_the_study_whose_rows_are_there(tmp_path: Path) -> None:
    (ablation,), (clusters,) = find_studies("ablation_calr_ms"), find_studies("num_clusters")
    stored = [store_run(tmp_path, request, 0.5) for request in expand(clusters, TINY, 1)]
    found = namings([ablation, clusters], stored)
    rows = [f"{row.labels['Method']} {row.labels['Clusters']}" for row in clusters.rows]
    assert [next(iter(found[run.id]["rows"].items())) for run in stored] == [("num_clusters", row) for row in rows]
    assert [len(found[run.id]["rows"]) for run in stored] == [2, 1, 1, 1]  # one of them stands in both tables
    assert found[stored[0].id]["metrics"] == [column.metric for column in clusters.columns]
    stored += [store_run(tmp_path, request, 0.5) for request in expand(ablation, TINY, 1)]
    assert next(iter(namings([ablation, clusters], stored)[stored[0].id]["rows"])) == "ablation_calr_ms"


def test_what_a_retraining_starts_from_is_a_search(tmp_path: Path) -> None:
    (study,) = find_studies("retrain_scheduler")
    request = expand(study, TINY, 1)[0]
    (start,) = parents([request])
    search, retraining = store_run(tmp_path, start, 0.5), store_run(tmp_path, request)
    found = {run_id: one["rows"][study.name] for run_id, one in namings([study], [search, retraining]).items()}
    assert found[search.id].endswith(" search") and found[retraining.id].endswith(" retraining")
    assert found[search.id].removesuffix("search") == found[retraining.id].removesuffix("retraining")
