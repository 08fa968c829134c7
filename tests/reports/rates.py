"""Rates of false verdicts and power of whole studies, by simulated runs that the real code judges.

    python -m tests.reports.rates [--repetitions 2000]

prints the tables of docs/reports.md. Rows are those of the studies of Tables 2 and 3 (CIFAR-10, three seeds, normal
values). Means and deviations are the paper's: Table 3 prints no deviations, so rows with CaLR or MS alone take those
that Table 2 prints for both together.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from harness.components.discovery import component
from harness.components.preset import Preset, get_preset
from harness.study.catalogue import find_studies
from harness.study.edges import CLUSTERS, SPLIT
from harness.study.expansion import expand
from harness.study.study import Request, Study

compared_by: Any = component("reports.compared")
comparison: Any = component("reports.comparison")
evidence: Any = component("reports.evidence")
numbers: Any = component("reports.paper.numbers")
verdicts: Any = component("reports.verdicts")

METRICS = ("kendall_tau", "top1_accuracy")
PLANNED, REPETITIONS = 3, 2000
STUDIES = {"nb201_main": "Table 2", "ablation_calr_ms": "Table 3"}
EQUAL, PRINTED, ONE_ROW, SPLIT_EDGE, CLUSTER_EDGE = SCENES = (
    "equal",
    "Table 2",
    "one row four times",
    "split edge",
    "edge of MS",
)
"""The deviations of the rows. An edge that seeds draw moves FSNAS's rows by four deviations, those with MS by one."""
MOVED = {SPLIT_EDGE: (SPLIT, 4.0), CLUSTER_EDGE: (CLUSTERS, 1.0)}


@dataclass(frozen=True)
class Scene:
    """A study with the true means and deviations of its rows, by row and metric."""

    study: Study
    preset: Preset
    requests: Mapping[tuple[int, int], Request]
    """By row and seed."""
    means: Mapping[tuple[int, str], float]
    deviations: Mapping[tuple[int, str], float]
    moved: Mapping[int, float]
    """By row, the deviation of what each seed adds to all these rows."""

    def verdicts(self, rng: np.random.Generator, paired: bool = False) -> list[Any]:
        """The judgements of one simulated campaign; with `paired`, by paired t-tests alone."""
        seeds = self.preset.seeds
        drawn = {place: rng.normal(mean, self.deviations[place], seeds) for place, mean in self.means.items()}
        added = {metric: rng.normal(0, 1, seeds) for metric in METRICS} if self.moved else {}
        found = []
        for (row, seed), request in self.requests.items():
            metrics = {
                metric: float(drawn[row, metric][seed] + (added[metric][seed] * self.moved[row] if self.moved else 0))
                for metric in METRICS
            }
            found.append(evidence.Evidence(request, None, "done", metrics=metrics))
        every = [one for one in comparison.compare(self.study, self.preset, found, {}) if one.seeds]
        if paired:
            every = [replace(one, estimate=None) for one in every]
        return cast(list[Any], verdicts.judge(every))


def scene(name: str, deviations: str, effects: bool, seeds: int = PLANNED, study: Study | None = None) -> Scene:
    """The scene of a study: with the paper's means if there are to be effects, else with equal ones."""
    (known,) = find_studies(name)
    preset = replace(get_preset("paper"), datasets=("cifar10",), seeds=seeds)
    requests = {(one.row, one.seed): one for one in expand(known, preset)}
    drawn = compared_by.drawn_by_row([evidence.Evidence(one, None, "done") for one in requests.values()])
    edge, size = MOVED.get(deviations, ("", 0.0))
    moved = {row: size if edge in edges else 0.0 for row, edges in drawn.items()} if edge else {}
    means, spreads = {}, {}
    for row, labels in ((number, known.rows[number].labels) for number in sorted(drawn)):
        ours = bool(labels.get("Ours") or labels.get("CaLR") or labels.get("MS"))
        for metric in METRICS:
            printed = numbers.quoted(name, labels, metric, "cifar10")
            other = numbers.quoted("nb201_main", {"Method": labels["Method"], "Ours": ours}, metric, "cifar10")
            means[row, metric] = float(printed.mean) if effects else 0.0
            spread = float(other.deviation) if deviations == PRINTED else 1.0
            spreads[row, metric] = 4.0 * spread if deviations == ONE_ROW and row == 1 else spread
    return Scene(study or known, preset, requests, means, spreads, moved)


def false_rate(name: str, deviations: str, repetitions: int, seed: int = 0, paired: bool = False) -> float:
    """The share of campaigns without any effect that have any verdict but undecided."""
    made, rng = scene(name, deviations, effects=False), np.random.default_rng(seed)
    return sum(any(one.decided for one in made.verdicts(rng, paired)) for _ in range(repetitions)) / repetitions


@dataclass(frozen=True)
class Power:
    """How many comparisons are decided as the paper's numbers say, on average, and how many there are."""

    primary: float
    statements: float
    others: float
    counts: tuple[int, int, int]

    def __str__(self) -> str:
        right = zip((self.primary, self.statements, self.others), self.counts, strict=True)
        return " | ".join(f"{one:.1f} of {count}" for one, count in right)


def power(name: str, repetitions: int, seed: int = 0, paired: bool = False) -> Power:
    """What three seeds decide if the paper's numbers are true."""
    made, rng = scene(name, PRINTED, effects=True), np.random.default_rng(seed)
    kinds = ("primary", "statement", "")
    right = dict.fromkeys(kinds, 0)
    counts = dict.fromkeys(kinds, 0)
    for _ in range(repetitions):
        # Each question once: as a primary contrast, or else as a statement of the paper.
        asked = {one.compared.question: one for one in reversed(made.verdicts(rng, paired))}
        found = [(one, one.compared.kind if one.compared.kind in kinds else "") for one in asked.values()]
        for one, kind in found:
            right[kind] += one.has_effect and bool(one.effect * one.compared.printed > 0)
        counts = {kind: sum(own == kind for _, own in found) for kind in kinds}
    first, second, third = (right[kind] / repetitions for kind in kinds)
    return Power(first, second, third, (counts["primary"], counts["statement"], counts[""]))


def table(repetitions: int = REPETITIONS) -> Iterator[str]:
    """The lines of the table of rates and power."""
    headings = [*(f"false: {one}" for one in SCENES), "right: primary", "right: statements", "right: others"]
    yield f"| study, rows | {' | '.join(headings)} |"
    yield f"|:--|{'--:|' * len(headings)}"
    for name, printed in STUDIES.items():
        rates = " | ".join(f"{100 * false_rate(name, one, repetitions):.1f} %" for one in SCENES)
        rows = len(scene(name, EQUAL, False).requests) // PLANNED
        yield f"| `{name}` ({printed}), {rows} | {rates} | {power(name, repetitions // 4)} |"


def main() -> None:
    from tests.reports import sequential

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    repetitions = parser.parse_args().repetitions
    for lines in (table(repetitions), sequential.table(repetitions)):
        for line in lines:
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
