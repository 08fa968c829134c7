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
from harness.study.configuration import RunConfig
from harness.study.references import references_of, stored_result

from ..compared import Checked, Compared
from ..evidence import Evidence, Findings
from .statements import statements

if TYPE_CHECKING:
    from harness.stores.store import Store

SORTED = 1 / 3
"""The least τ of the number of parameters at which larger networks count as better: two pairs of three are in order."""

Finding = tuple[bool, str] | None
"""Whether a premise holds, and the numbers that say so; None where the store does not have them."""


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
        "CB above its neutral value and C³ below 0, means over the seeds",
        by_method=True,
    ),
    "gradients-vary": Premise(
        "gradients vary from subnet to subnet",
        "at the end of training they spread more in the baseline than with momentum separated by operation",
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
    biases, neutrals, convergences = [], [], []
    for one in _runs(findings, dataset, method, _is_baseline):
        own = one.metrics.get("complexity_bias") is not None
        # One training that is judged by several truths has rankings of all of them.
        others = [] if findings.preset.trained_on or one.run is None else one.run.rankings.values()
        found: Mapping[str, Any] = next(
            (ranked for ranked in ([one.metrics] if own else others) if ranked.get("complexity_bias") is not None), {}
        )
        if found and found.get("neutral_complexity_bias") is not None:
            biases.append(found["complexity_bias"])
            neutrals.append(found["neutral_complexity_bias"])
            convergences.append(found["complexity_convergence"])
    if not biases or None in convergences:
        return None
    bias, neutral, convergence = map(statistics.fmean, (biases, neutrals, convergences))
    seeds = f"{len(biases)} seed{'s' * (len(biases) != 1)}"
    return bias > neutral and convergence < 0, f"CB {bias:.3f}, neutral {neutral:.3f}; C³ {convergence:+.3f}; {seeds}"


def _gradients_vary(findings: Findings, store: Store, dataset: str, method: str) -> Finding:
    spreads = []
    for wanted in (_is_baseline, _is_separated):
        by_seed = {}
        for one in _runs(findings, dataset, method, wanted):
            points = ((one.run.result if one.run else None) or {}).get(OBSERVED, {}).get("gradient_spread")
            if points and points[-1][1] is not None:
                by_seed[one.request.seed] = points[-1][1]
        spreads.append(by_seed)
    common = sorted(spreads[0].keys() & spreads[1].keys())
    if not common:
        return None
    plain, separated = (statistics.fmean(own[seed] for seed in common) for own in spreads)
    return plain > separated, f"{plain:.3g} and {separated:.3g}"


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


def _is_separated(config: RunConfig) -> bool:
    return config.clusters.name == "operation" and _is_static(config)


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
        for holds, what in ((True, "It holds"), (False, "It does not hold"), (None, "Not measured")):
            own = [check for check in checks if check.premise == text and check.holds is holds]
            if own:
                places = dict.fromkeys(_place(check, several) for check in own)
                words.append(f"{what}{': ' * any(places)}{'; '.join(filter(None, places))}.")
        lines.append(f"Premise: {text} ({how}). {' '.join(words)}")
    return lines


def _place(check: Checked, several: bool) -> str:
    about = ", ".join([*([check.about] if check.about else []), *([check.dataset] if several else [])])
    if not (about and check.numbers):
        return about or check.numbers
    return f"{about} ({check.numbers})"
