"""Finds the stored run for each request of a study, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from harness.components.preset import Preset
from harness.schema import OBSERVED, AcceptedDocument
from harness.stores.directory.run_directory import WEIGHTS
from harness.study.curves import AVERAGED, curves_of
from harness.study.edits import Edit, accepted_in, edits
from harness.study.expansion import expand_stored
from harness.study.metrics import SUPERNET
from harness.study.predictions import Imported, stored
from harness.study.study import Request, Study
from harness.study.trial import Trial

from .provenance import versions
from .unshown import more_seeds, other_scales

if TYPE_CHECKING:
    from harness.stores.store import Store
    from harness.stores.stored import Problem, StoredRun


@dataclass(frozen=True)
class Evidence:
    """What the store holds for one request. `metrics` is empty unless the state is "done"."""

    request: Request
    run: StoredRun | None
    state: str
    reason: str = ""
    """Why there is no value, for the reader."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    invalid: tuple[StoredRun, ...] = ()
    """Runs of the trial that were declared invalid."""
    among: int = 1
    """Of how many retrained architectures this is the best."""


@dataclass(frozen=True)
class Findings:
    """Everything a store holds for a study under one preset: the input of its table and figures."""

    study: Study
    preset: Preset
    seeds: int | None
    overrides: Mapping[str, Any]
    where: str | None
    requests: Sequence[Request]
    found: Sequence[Evidence]
    """One entry per request."""
    counted: Sequence[Evidence]
    """The entries for which the condition `where` holds; of a row that retrains several architectures the best."""
    left_out: int
    """How many entries the condition leaves out."""
    store: str
    problems: Sequence[Problem]
    """Entries of these trials in the store that cannot be used."""
    unshown: Sequence[str] = ()
    """What the store holds of the study besides, and how to ask for it."""
    imported: Sequence[Imported] = ()
    """Predictions from elsewhere for the study's space."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """By version of the harness, where it is known, how many of the runs it made."""
    edits: Sequence[Edit] = ()
    """The user's files that have changed since runs were made, which do not count now."""
    accepted: Sequence[AcceptedDocument] = ()
    """The records by which runs count although the code has changed since."""


def find(
    study: Study,
    preset: Preset,
    store: Store,
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    where: str | None = None,
) -> Findings:
    """Find everything that the store holds for the study.

    `overrides` apply to the trials that are looked up. `where` is a condition on the columns of
    `harness.results.runs` that selects the runs that count. Raises `InvalidConfiguration`.
    """
    requests = expand_stored(study, preset, store.runs, seeds, overrides)
    trials = [request.trial for request in requests]
    keys = {trial.key for trial in trials} | {trial.start.key for trial in trials if trial.start is not None}
    found = [_without_weights(one, store) for one in gather(requests, store.runs(keys))]
    problems = tuple(store.problems)
    matching = _matching(found, where, preset.name)
    unshown = more_seeds(requests, store) if seeds is None else []
    if all(one.state == "missing" for one in found):
        unshown += other_scales(study, store)
    left_out = len(found) - len(matching)
    asked = (study, preset, seeds, dict(overrides or {}), where, requests)
    imported = stored(store, {trial.config.space for trial in trials})
    counted = best_retrained(matching)
    made = versions([one.run for one in counted if one.run is not None and one.state == "done"], store)
    findings = Findings(*asked, found, counted, left_out, store.name, problems, unshown, imported, made)
    return replace(findings, edits=edits(requests, store.runs), accepted=_accepted(counted, store))


def _accepted(counted: Sequence[Evidence], store: Store) -> list[AcceptedDocument]:
    """The records by which some of these runs count although the code has changed since they were made."""
    runs = {one.run.key: one.run for one in counted if one.run is not None}
    versions = {one.code for one in accepted_in((one.request for one in counted), runs)}
    return [one for one in store.accepted() if versions & {*one["versions"]}] if versions else []


def gather(requests: Iterable[Request], runs: Sequence[StoredRun]) -> list[Evidence]:
    """The evidence for each request, in the order of the requests.

    A run answers a request if their keys are equal: an equal key is an equal configuration. So a run with
    overrides that matter never answers a request without them, and additional observations do not matter.
    """
    by_key: dict[str, list[StoredRun]] = {}
    for run in runs:
        if not run.superseded:
            by_key.setdefault(run.key, []).append(run)
    found = []
    for request in requests:
        candidates = by_key.get(request.trial.key, [])
        invalid = tuple(run for run in candidates if run.invalid is not None)
        judged = _judge(request, [run for run in candidates if run.invalid is None])
        if judged.metrics and (start := request.trial.start) is not None:
            judged = replace(judged, metrics={**judged.metrics, SUPERNET: _of_the_start(start, by_key)})
        found.append(replace(judged, invalid=invalid))
    return found


def _without_weights(one: Evidence, store: Store) -> Evidence:
    """The same; a run that is not ranked as requested says if its weights are not stored."""
    if one.state != "unranked" or one.run is None or WEIGHTS in store.files(one.run):
        return one
    told = "its weights are not stored, so only stored predictions could rank it"
    return replace(one, reason=f"trained, but not ranked as requested (run {one.run.id}); {told}")


def _of_the_start(start: Trial, by_key: Mapping[str, Sequence[StoredRun]]) -> Mapping[str, Any]:
    """The metrics of the trial that a retraining starts from: those of its supernets and their search."""
    done = [run for run in by_key.get(start.key, ()) if run.invalid is None and run.status == "done"]
    if not done:
        return {}
    run = max(done, key=lambda one: one.attempt)
    return {**(run.cost or {}), **run.rankings.get(start.ranking_key, {})}


def best_retrained(found: Sequence[Evidence]) -> list[Evidence]:
    """The same, with one entry per row, data set and seed: of several retrained architectures the best.

    The best has the highest accuracy on the test images; of equal ones the first found. It is known when all are
    done; diverged ones are done, and never the best.
    """
    groups: dict[tuple[int, str, int], list[Evidence]] = {}
    for one in found:
        groups.setdefault((one.request.row, one.request.dataset, one.request.seed), []).append(one)
    return [members[0] if len(members) == 1 else _best(members) for members in groups.values()]


def _best(members: Sequence[Evidence]) -> Evidence:
    done = [one for one in members if one.metrics.get("retrained_accuracy") is not None]
    lacking = [one for one in members if one.state not in ("done", "diverged")] or ([] if done else list(members))
    if not lacking:
        return replace(max(done, key=lambda one: one.metrics["retrained_accuracy"]), among=len(members))
    reasons = [f"found {_which(one)} is {one.reason}" for one in lacking]
    return replace(lacking[0], reason="; ".join(reasons), among=len(members))


def _which(one: Evidence) -> int:
    retrain = one.request.trial.config.retrain
    return retrain.which if retrain is not None else 0


def _judge(request: Request, candidates: Sequence[StoredRun]) -> Evidence:
    if not candidates:
        return Evidence(request, None, "missing", "missing")
    run = max(candidates, key=lambda one: (one.status == "done", one.attempt))
    if run.status == "failed":
        return Evidence(request, run, "failed", f"failed (run {run.id}{_last_line(run.fail_trace)})")
    if run.status != "done":
        return Evidence(request, run, run.status, f"{run.status} (run {run.id}{_last_line(run.fail_trace)})")
    diverged = (run.result or {}).get("diverged")
    if diverged:
        return Evidence(request, run, "diverged", f"diverged at step {diverged['step']} (run {run.id})")
    ranking = request.trial.ranking_key
    if ranking not in run.rankings:
        reason = f"trained, but not ranked as requested (run {run.id}); `harness run` does that from its weights"
        return Evidence(request, run, "unranked", reason)
    last = {name: points[-1][1] for name, points in curves(run, ranking).items() if points}
    if averaged := curves(run, ranking).get(AVERAGED):  # the run may have averaged over more epochs
        last[AVERAGED] = dict(map(tuple, averaged)).get(request.trial.config.observe.average_last, averaged[-1][1])
    return Evidence(request, run, "done", metrics={**last, **(run.cost or {}), **run.rankings[ranking]})


def curves(run: StoredRun, ranking: str) -> dict[str, list[list[Any]]]:
    """The curves observed while the run trained, by name: steps and values.

    Curves that depend on how the run is ranked and judged are those of `ranking`, if there are any.
    """
    return curves_of((run.result or {}).get(OBSERVED) or {}, run.own_ranking, ranking)


def _last_line(trace: Sequence[str] | None) -> str:
    """The error message, from Sacred's list of lines."""
    lines = "".join(trace or ()).strip().splitlines()
    return f": {lines[-1].strip()}" if lines else ""


def _matching(found: list[Evidence], where: str | None, preset: str) -> list[Evidence]:
    """The evidence for which the condition holds. Without a run, only the configuration is tested."""
    if where is None:
        return found
    from harness.query import select
    from harness.results import columns_of, frame, record

    records = []
    for one in found:
        blank = {"status": one.state, "preset": preset, "overridden": one.request.overridden, "diverged": False}
        known = record(one.run, one.request.trial.ranking_key) if one.run else blank
        records.append({**known, **columns_of(one.request.trial.config.json())})
    return [found[number] for number in select(frame(records), where).index]
