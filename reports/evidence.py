"""Which stored run answers a request, or why none does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from harness.study import Request

if TYPE_CHECKING:
    from harness.stores.stored import StoredRun


@dataclass(frozen=True)
class Evidence:
    """What the store holds for one request. Metrics are there only when the state is "done"."""

    request: Request
    run: StoredRun | None
    state: str
    reason: str = ""
    """What a reader should know when there is no value."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    invalid: tuple[StoredRun, ...] = ()
    """Runs of the cell that somebody declared invalid."""


def gather(requests: Iterable[Request], runs: Sequence[StoredRun]) -> list[Evidence]:
    """The evidence for each request, in their order.

    A run answers by identity: an equal key is an equal configuration, so that runs with overrides that
    matter never answer a request without them, and what was only observed in addition does not matter.
    """
    by_key: dict[str, list[StoredRun]] = {}
    for run in runs:
        if not run.superseded:
            by_key.setdefault(run.key, []).append(run)
    found = []
    for request in requests:
        candidates = by_key.get(request.cell.key, [])
        invalid = tuple(run for run in candidates if run.invalid is not None)
        judged = _judge(request, [run for run in candidates if run.invalid is None])
        found.append(replace(judged, invalid=invalid))
    return found


def _judge(request: Request, candidates: Sequence[StoredRun]) -> Evidence:
    if not candidates:
        return Evidence(request, None, "missing", "missing")
    run = max(candidates, key=lambda one: (one.status == "done", one.attempt))
    if run.status == "failed":
        return Evidence(request, run, "failed", f"failed (run {run.id}{_last_line(run.fail_trace)})")
    if run.status != "done":
        return Evidence(request, run, run.status, f"{run.status} (run {run.id})")
    diverged = (run.result or {}).get("diverged")
    if diverged:
        return Evidence(request, run, "diverged", f"diverged at step {diverged['step']} (run {run.id})")
    ranking = request.cell.ranking_key
    if ranking not in run.rankings:
        reason = f"trained, but not ranked as asked (run {run.id}); `harness run` does that from its weights"
        return Evidence(request, run, "unranked", reason)
    metrics = {**last_values(run), **(run.cost or {}), **run.rankings[ranking]}
    return Evidence(request, run, "done", metrics=metrics)


def last_values(run: StoredRun) -> dict[str, Any]:
    """Where the curves that were observed while the run trained ended, by name."""
    curves = (run.result or {}).get("observed") or {}
    return {name: points[-1][1] for name, points in curves.items() if points}


def _last_line(trace: Sequence[str] | None) -> str:
    """The error itself, from Sacred's list of lines."""
    lines = "".join(trace or ()).strip().splitlines()
    return f": {lines[-1].strip()}" if lines else ""
