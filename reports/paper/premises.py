"""Premises of the paper's statements, checked on a store: a statement whose premise fails has nothing to show there.

CaLR is for supernets that sell large networks short where large networks are better. MS is for gradients that vary from
subnet to subnet. Where that is not so, a method that gains nothing is the right answer.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from harness.components.registries import SCHEDULES
from harness.errors import DataError
from harness.schema import OBSERVED
from harness.statistics import ALPHA, Sample, t_test
from harness.study.configuration import RunConfig
from harness.study.references import references_of, stored_result

from ..compared import Checked, Compared
from ..evidence import Evidence, Findings
from .statements import statements

if TYPE_CHECKING:
    from harness.stores.store import Store

SORTED = 1 / 3
"""The least τ of the number of parameters at which larger networks count as better: two pairs of three are in order."""

NEGLIGIBLE = 0.01
"""The share of the gradients' variance between clusters below which clusters do not differ."""

Finding = tuple[bool | None, str] | None
"""Whether a premise holds (None: the seeds do not decide), and the numbers; None where the store has no numbers."""


@dataclass(frozen=True)
class Premise:
    """What a statement takes for granted."""

    text: str
    how: str
    """How it is checked."""
    by_method: bool
    """Whether it is about the training of each method, or about the truth."""


PREMISES = {
    "larger-better": Premise(
        "larger networks are better in this truth",
        "Kendall's τ of the number of parameters is at least 1/3: of three pairs of the selected networks, two are in "
        "order",
        by_method=False,
    ),
    "baseline-unfair": Premise(
        "the baseline is unfair to large networks",
        "mean of z of CB and −z of C³, both against the null that is matched to the run's predictions: a t-test over "
        "the seeds at 5 % decides whether it is above 0, below 0 (then it does not hold), or neither",
        by_method=True,
    ),
    "gradients-vary": Premise(
        "gradients vary from subnet to subnet",
        "the share of the variance of the baseline's gradients that is between clusters by operation, at the end of "
        "training: a t-test over the seeds at 5 % decides whether it is above 0, below "
        f"{100 * NEGLIGIBLE:g} % (then it does not hold), or neither",
        by_method=True,
    ),
}
"""By the name that the file of statements uses."""


def with_premises(findings: Findings, store: Store, compared: Sequence[Compared]) -> tuple[Compared, ...]:
    """The comparisons, those of statements with the checks of their premises."""
    named = {one.text: one.premises for one in statements() if one.study == findings.study.name}
    known: dict[tuple[str, str, str], Finding] = {}

    def checks(one: Compared) -> Iterator[Checked]:
        for name in named.get(one.name, ()) if one.kind == "statement" else ():
            premise = PREMISES[name]
            methods = _methods(findings, one) if premise.by_method else {"": ""}
            for method, label in methods.items():
                asked = name, one.dataset, method
                if asked not in known:
                    known[asked] = _CHECKS[name](findings, store, one.dataset, method)
                holds, numbers = known[asked] or (None, "")
                yield Checked(premise.text, premise.how, one.dataset, label, holds, numbers)

    return tuple(replace(one, premises=tuple(checks(one))) for one in compared)


def _methods(findings: Findings, one: Compared) -> dict[str, str]:
    """The methods of the rows that are compared, and what the study calls them."""
    rows = findings.study.rows
    found: dict[str, str] = {}
    for evidence in findings.counted:
        if evidence.request.row in one.numbers:
            name = evidence.request.trial.config.method.name
            found.setdefault(name, str(rows[evidence.request.row].labels.get("Method", name)))
    return found


def _larger_better(findings: Findings, store: Store, dataset: str, method: str) -> Finding:
    """By the reference whose predictions are numbers of parameters."""
    asked = references_of(findings.study, findings.preset, store.runs, findings.seeds, findings.overrides)
    try:
        found = [stored_result(store, one) for one in asked if (one.name, one.dataset) == ("parameters", dataset)]
    except DataError:
        return None
    taus = [result["kendall_tau"] for result in found if result and result["kendall_tau"] is not None]
    if not taus:
        return None
    tau = statistics.fmean(taus)
    return tau >= SORTED, f"τ = {tau:.3f}"


def _baseline_unfair(findings: Findings, store: Store, dataset: str, method: str) -> Finding:
    """By any ranking of the baseline's weights that has measured it: that of another study, too."""
    biases, convergences = [], []
    for one in _runs(findings, dataset, method, _is_baseline):
        own = one.metrics.get("complexity_bias_z") is not None
        # One training that is judged by several truths has rankings of all of them.
        others = [] if findings.preset.trained_on or one.run is None else one.run.rankings.values()
        found: Mapping[str, Any] = next(
            (ranked for ranked in ([one.metrics] if own else others) if ranked.get("complexity_bias_z") is not None), {}
        )
        if found and found.get("complexity_convergence_z") is not None:
            biases.append(found["complexity_bias_z"])
            convergences.append(found["complexity_convergence_z"])
    if not biases:
        return None
    means = [statistics.fmean(own) for own in (biases, convergences)]
    unfair = [(bias - convergence) / 2 for bias, convergence in zip(biases, convergences, strict=True)]
    return three_way(unfair), f"z of CB {means[0]:+.1f}, of C³ {means[1]:+.1f}; {_seeds(biases)}"


def _gradients_vary(findings: Findings, store: Store, dataset: str, method: str) -> Finding:
    """By the baseline alone: what momentum separation does to gradients is its effect, not its premise."""
    shares = []
    for one in _runs(findings, dataset, method, _is_baseline):
        points = ((one.run.result if one.run else None) or {}).get(OBSERVED, {}).get("gradient_share_between")
        if points and points[-1][1] is not None:
            shares.append(points[-1][1])
    if not shares:
        return None
    return three_way(shares, NEGLIGIBLE), f"{100 * statistics.fmean(shares):.1f} %; {_seeds(shares)}"


def three_way(values: Sequence[float], negligible: float = 0.0) -> bool | None:
    """Whether the mean of what the seeds measured is above 0 (True), or below what is negligible (False), by t-tests.

    None where the seeds do not decide; one seed never does.
    """
    above, below = (Sample.of([value - least for value in values]) for least in (0.0, negligible))
    if float(t_test(above)) <= ALPHA and above.mean > 0:
        return True
    return False if float(t_test(below)) <= ALPHA and below.mean < 0 else None


def _seeds(values: Sequence[float]) -> str:
    return f"{len(values)} seed{'s' * (len(values) != 1)}"


def _runs(findings: Findings, dataset: str, method: str, wanted: Callable[[RunConfig], bool]) -> Iterator[Evidence]:
    """The done runs of a method whose configuration is such, once for each seed."""
    seen = set()
    for one in findings.counted:
        config = one.request.trial.config
        asked = one.request.dataset == dataset and config.method.name == method and one.state == "done"
        if asked and config.seed not in seen and wanted(config):
            seen.add(config.seed)
            yield one


def _is_baseline(config: RunConfig) -> bool:
    return config.clusters.name == "none" and _is_static(config)


def _is_static(config: RunConfig) -> bool:
    """Whether all subnets have one schedule, are drawn alike, and are trained with momentum."""
    if SCHEDULES.get(config.schedule.name).depends_on_path or config.sampler.name != "uniform":
        return False
    return bool(config.optimiser.options.get("momentum", 1) > 0)


_CHECKS: dict[str, Callable[[Findings, Store, str, str], Finding]] = {
    "larger-better": _larger_better,
    "baseline-unfair": _baseline_unfair,
    "gradients-vary": _gradients_vary,
}


def premise_notes(judged: Sequence[Compared]) -> list[str]:
    """One line per premise: how it is checked, and where it holds, does not hold, or is not measured."""
    checks = dict.fromkeys(check for one in judged for check in one.premises)
    several = len({check.dataset for check in checks}) > 1
    lines = []
    for text, how in dict.fromkeys((check.premise, check.how) for check in checks):
        words = []
        for what, own in _by_finding([check for check in checks if check.premise == text]).items():
            if own:
                places = dict.fromkeys(_place(check, several) for check in own)
                words.append(f"{what}{': ' * any(places)}{'; '.join(filter(None, places))}.")
        lines.append(f"Premise: {text} ({how}). {' '.join(words)}")
    return lines


def _by_finding(checks: Sequence[Checked]) -> dict[str, list[Checked]]:
    """The checks by what they found."""
    found: dict[str, list[Checked]] = {"It holds": [], "It does not hold": [], "Undecided": [], "Not measured": []}
    for check in checks:
        undecided = "Undecided" if check.numbers else "Not measured"
        found[undecided if check.holds is None else "It holds" if check.holds else "It does not hold"].append(check)
    return found


def _place(check: Checked, several: bool) -> str:
    about = ", ".join([*([check.about] if check.about else []), *([check.dataset] if several else [])])
    if not (about and check.numbers):
        return about or check.numbers
    return f"{about} ({check.numbers})"
