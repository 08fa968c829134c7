"""Rates of false verdicts and power of whole studies, by simulated runs that the real code judges.

    python -m tests.reports.rates [--repetitions 2000]

prints the table of docs/reports.md. Rows are those of the studies of Tables 2 and 3 (CIFAR-10, three seeds, normal
values). Means and deviations are the paper's: Table 3 prints no deviations, so rows with CaLR or MS alone take those
that Table 2 prints for both together.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from harness.components.discovery import component
from harness.components.preset import Preset, get_preset
from harness.study.catalogue import find_studies
from harness.study.study import Request, Study

comparison: Any = component("reports.comparison")
evidence: Any = component("reports.evidence")
numbers: Any = component("reports.paper.numbers")
verdicts: Any = component("reports.verdicts")

METRICS = ("kendall_tau", "top1_accuracy")
PLANNED = 3
STUDIES = {"nb201_main": "Table 2", "ablation_calr_ms": "Table 3"}
DEVIATIONS = ("equal", "Table 2", "one row four times")


@dataclass(frozen=True)
class Scene:
    """A study with the true means and deviations of its rows, by row and metric."""

    study: Study
    preset: Preset
    means: Mapping[tuple[int, str], float]
    deviations: Mapping[tuple[int, str], float]

    def verdicts(self, rng: np.random.Generator, paired: bool = False) -> list[Any]:
        """The judgements of one simulated campaign; with `paired`, by paired t-tests alone."""
        found = []
        rows = {row for row, _ in self.means}
        drawn = {place: rng.normal(mean, self.deviations[place], PLANNED) for place, mean in self.means.items()}
        for row in rows:
            for seed in range(PLANNED):
                request = Request(self.study.name, row, "cifar10", seed, cast(Any, None), False)
                metrics = {metric: float(drawn[row, metric][seed]) for metric in METRICS}
                found.append(evidence.Evidence(request, None, "done", metrics=metrics))
        compared = [one for one in comparison.compare(self.study, self.preset, found, {}) if one.seeds]
        if paired:
            compared = [replace(one, estimate=None) for one in compared]
        return cast(list[Any], verdicts.judge(compared))


def scene(name: str, deviations: str, effects: bool) -> Scene:
    """The scene of a study: with the paper's means if there are to be effects, else with equal ones."""
    (study,) = find_studies(name)
    preset = replace(get_preset("paper"), datasets=("cifar10",), seeds=PLANNED)
    means, spreads = {}, {}
    for row, labels in ((number, one.labels) for number, one in enumerate(study.rows) if one.source == "runs"):
        ours = bool(labels.get("Ours") or labels.get("CaLR") or labels.get("MS"))
        for metric in METRICS:
            printed = numbers.quoted(study.name, labels, metric, "cifar10")
            known = numbers.quoted("nb201_main", {"Method": labels["Method"], "Ours": ours}, metric, "cifar10")
            means[row, metric] = float(printed.mean) if effects else 0.0
            spread = 1.0 if deviations != "Table 2" else float(known.deviation)
            spreads[row, metric] = 4.0 * spread if deviations == DEVIATIONS[2] and row == 1 else spread
    return Scene(study, preset, means, spreads)


def false_rate(name: str, deviations: str, repetitions: int, seed: int = 0, paired: bool = False) -> float:
    """The share of campaigns without any effect that have any verdict but undecided."""
    made, rng = scene(name, deviations, effects=False), np.random.default_rng(seed)
    return sum(any(one.decided for one in made.verdicts(rng, paired)) for _ in range(repetitions)) / repetitions


def decided(name: str, repetitions: int, seed: int = 0, paired: bool = False) -> tuple[float, float, int, int]:
    """How many primary contrasts and others are right on average if the paper's numbers are true, and of how many."""
    made, rng = scene(name, "Table 2", effects=True), np.random.default_rng(seed)
    counts, of = [0, 0], [0, 0]
    for _ in range(repetitions):
        judged = {one.compared.question: one for one in made.verdicts(rng, paired)}.values()
        for one in judged:
            counts[one.compared.primary] += one.decided
        of = [sum(one.compared.primary is which for one in judged) for which in (False, True)]
    return counts[1] / repetitions, counts[0] / repetitions, of[1], of[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=2000)
    repetitions = parser.parse_args().repetitions
    print(f"{repetitions:,} repetitions, seed 0, {PLANNED} seeds a row (tests/reports/rates.py)\n")
    print("| study, rows | " + " | ".join(f"false: {one}" for one in DEVIATIONS) + " | decided: primary, others |")
    print("|:--|--:|--:|--:|--:|")
    for name, table in STUDIES.items():
        rates = [100 * false_rate(name, one, repetitions) for one in DEVIATIONS]
        first, second, of, others = decided(name, repetitions // 4)
        rows = len({row for row, _ in scene(name, "equal", False).means})
        cells = [f"`{name}` ({table}), {rows}", *(f"{rate:.1f} %" for rate in rates)]
        print(f"| {' | '.join(cells)} | {first:.1f} of {of}, {second:.1f} of {others} |", flush=True)


if __name__ == "__main__":
    main()
