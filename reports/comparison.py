"""The comparisons of a report as grids of text: verdict, effect and interval first, what they rest on behind."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from harness.components.preset import Preset
from harness.statistics import ENUMERATED, FLIPS
from harness.study.study import Request, Study

from .compared import Checked, Compared, Margins, effects_compared, rows_compared
from .evidence import Evidence, Findings, best_retrained, gather
from .grid import Grid
from .notes import scale
from .paper.comparison import statement_notes
from .paper.measured import statements_compared
from .values import Table, shown, signed
from .verdicts import VERDICTS, Judgement, judge
from .words import DASH

if TYPE_CHECKING:
    from harness.stores.stored import StoredRun

VERDICT, EFFECT, INTERVAL, SEEDS = "Verdict", "Effect", "95 % interval", "Seeds"
UNMET = "; premise fails"
FIRST = (VERDICT, EFFECT, INTERVAL)
DETAILS = (
    "Test",
    "p",
    "p after Holm",
    "Sign-flip p",
    "Least p",
    "Detectable (80 %)",
    "Probability of improvement",
    "e-value",
    "Margin",
)
KINDS = {
    "statement": ("statements", "the paper's statements"),
    "rows": ("comparisons", "comparisons of its rows"),
    "effect": ("effects", "effects of its factors"),
}
"""By kind of comparison, the grid's name and its title."""
HEADINGS = {"statement": ("Statement", "Rows"), "rows": ("Rows", "Column"), "effect": ("Factor", "Column")}
"""What stands before the verdict, and what behind the interval."""


def compare(study: Study, preset: Preset, counted: Sequence[Evidence], margins: Margins) -> tuple[Compared, ...]:
    """All comparisons of a study: the paper's statements, its own rows as far as these leave any, its factors."""
    asked = (study, preset, counted, margins)
    stated = [compared for _, compared in statements_compared(*asked)]
    own = rows_compared(*asked, covered=[one.key for one in stated])
    return (*stated, *own, *effects_compared(*asked))


def look(
    asked: Iterable[tuple[Study, Preset, Sequence[Request]]], runs: Sequence[StoredRun], margins: Margins
) -> list[Judgement]:
    """Judge these requests of studies as stored runs leave them now, at any number of seeds."""
    compared = [
        one
        for study, preset, requests in asked
        for one in compare(study, preset, best_retrained(gather(requests, runs)), margins)
    ]
    return judge(compared, anytime=True)


def verdict_grids(findings: Findings, table: Table, judgements: Sequence[Judgement]) -> list[Grid]:
    """One grid per kind of comparison that the study has."""
    grids = []
    for kind in KINDS:
        if own := [one for one in judgements if one.compared.kind == kind]:
            grids.append(_grid(findings, table, kind, own))
    return grids


def interval_text(judgements: Sequence[Judgement]) -> str:
    """What the intervals of these comparisons are, and what error rate their verdicts have: for a caption."""
    ways = {one.anytime for one in judgements}
    if not (m := judgements[0].m):
        return "Interval and verdict: none, for want of seeds."
    words = []
    if False in ways:
        words.append(
            "Interval: 95 % t interval of the mean over the seeds. Verdict: t-tests at 5 % in all, by Holm's rule over "
            f"the m = {m} comparisons of this report."
        )
    if True in ways:
        words.append(
            f"{'Anytime: ' if False in ways else ''}the interval is a 95 % confidence sequence, the verdict is by "
            f"e-values at 5 % in all, by Bonferroni's rule over m = {m} comparisons; both hold at any number of seeds."
        )
    text = " ".join(words)
    return text[:1].upper() + text[1:]


def compared_numbers(numbers: Sequence[float], digits: int | None) -> list[str]:
    """Signed, with the same number of digits: the column's, or more until no nonzero number reads as 0."""
    if digits is None:
        return [signed(f"{number:.3g}") for number in numbers]
    enough = next((more for more in range(6) if all(round(n, digits + more) or not n for n in numbers)), 6)
    return [signed(shown(number, digits + enough)) for number in numbers]


def effect_texts(one: Judgement) -> tuple[str, str]:
    """The effect and its interval as text."""
    own = [] if one.effect is None else [one.effect, *(one.interval or ())]
    texts = compared_numbers([number for number in own if math.isfinite(number)], one.compared.digits)
    bounded = f"{texts[1]} to {texts[2]}" if len(texts) == 3 else "unbounded"
    return (texts[0] if texts else DASH), (DASH if one.interval is None else bounded)


def verdict_text(one: Judgement) -> str:
    """The verdict, where it leans without correction for the other comparisons, and whether a premise fails."""
    leaning = f", leans {one.leans}" if one.leans else ""
    return f"{one.verdict}{leaning}{_unmet(one.compared.premises)}"


def _unmet(premises: Sequence[Checked]) -> str:
    """Whether a premise fails; for which methods, if not for all."""
    failing = dict.fromkeys(check.about for check in premises if check.holds is False)
    if not failing:
        return ""
    partly = "" not in failing and len(failing) < len({check.about for check in premises if check.about})
    return f"{UNMET} for {', '.join(failing)}" if partly else UNMET


def _grid(findings: Findings, table: Table, kind: str, judgements: Sequence[Judgement]) -> Grid:
    name, title = KINDS[kind]
    first, second = HEADINGS[kind]
    units = (_unit(findings.study),)
    beside, behind = _placed(kind, units)
    headings = (first, *FIRST, second, *beside, "Data set", "Paper's effect", SEEDS, "Where", *DETAILS, *behind)
    words = {first, VERDICT, INTERVAL, second, *units, "Data set", SEEDS, "Where", "Test"}
    return Grid(
        name=f"{findings.study.name}-{name}",
        title=f"{table.title}: {title}",
        scale=scale(findings, interval_text(judgements)),
        headings=headings,
        rows=tuple(_row(one) for one in judgements),
        numeric=tuple(heading not in words for heading in headings),
        notes=(*_notes(findings.study, kind, judgements),),
        details=1 + len(DETAILS) + len(behind),
    )


def _row(one: Judgement) -> tuple[str, ...]:
    compared = one.compared
    printed = DASH if compared.printed is None else compared_numbers([compared.printed], compared.digits)[0]
    first = {"statement": compared.name, "rows": compared.rows, "effect": compared.name}[compared.kind]
    second = compared.rows if compared.kind == "statement" else compared.column
    seeds = f"{len(compared.seeds)}" + (" (anytime)" if one.anytime and one.interval is not None else "")
    lead = (first, verdict_text(one), *effect_texts(one), second)
    units = (DASH if one.units is None else f"{one.units[0]} of {one.units[1]} above 0, p = {_p(one.units[2])}",)
    beside, behind = _placed(compared.kind, units)
    return (*lead, *beside, compared.dataset, printed, seeds, compared.where or DASH, *_details(one), *behind)


def _placed(kind: str, units: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Where effects by group and seed stand: with factors, in the details of statements, nowhere for single rows."""
    return (units if kind == "effect" else ()), (units if kind == "statement" else ())


def _unit(study: Study) -> str:
    """The heading of effects by group and seed."""
    return f"By {study.group or 'group'} and seed"


def _details(one: Judgement) -> tuple[str, ...]:
    compared = one.compared
    if one.interval is None:
        return (compared.method, *(DASH for _ in DETAILS[1:]))
    margin = None if compared.margin is None else f"{compared.margin:g}"
    detectable = None if one.detectable is None else compared_numbers([one.detectable], compared.digits)[0].lstrip("+")
    return (
        compared.method,
        _p(one.p),
        _p(one.adjusted),
        _p(one.flips) + (" (drawn)" if one.flips is not None and len(compared.seeds) > ENUMERATED else ""),
        _p(one.least),
        detectable or DASH,
        DASH if one.improvement is None else f"{one.improvement:.2f}",
        DASH if one.e_value is None else f"{one.e_value:.3g}",
        margin or DASH,
    )


def _p(p: float | None) -> str:
    return DASH if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _notes(study: Study, kind: str, judgements: Sequence[Judgement]) -> list[str]:
    counts = Counter(one.verdict for one in judgements)
    summary = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    lines = [
        f"Of {len(judgements)} comparison{'s' * (len(judgements) != 1)}: {summary}.",
        {
            "statement": "Paired over seeds. An effect above 0 speaks for the statement. One seed decides nothing.",
            "rows": "Paired over seeds. Supported: the first row is better than the second, by the column's rule. One "
            "seed decides nothing.",
            "effect": "Each effect is averaged over all other factors within a seed. Supported: it makes the column's "
            "value better. An interaction (×) is by how much the first effect is larger with the second.",
        }[kind],
    ]
    if any(one.leans for one in judgements):
        lines.append("Leans: the verdict without correction for the other comparisons; 1 in 20 leans by chance.")
    if any(one.p is not None for one in judgements):
        lines.append("The formats html and csv show what each verdict rests on: p, sign-flip p, detectable difference.")
    if any(one.units for one in judgements):
        lines.append(
            f"{_unit(study)}: the same with each of these as a unit of its own, which takes those of one seed for "
            "independent; it decides nothing."
        )
    if any(len(one.compared.seeds) > ENUMERATED for one in judgements):
        lines.append(f"Sign-flip p beyond {ENUMERATED} seeds: of {FLIPS:,} random flips, always the same.")
    if kind == "statement":
        lines += statement_notes(study, [one.compared for one in judgements])
    return lines
