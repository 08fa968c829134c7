"""The comparisons of a report as grids of text: verdict, effect and interval first, what they rest on behind."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.components.preset import Preset
from harness.statistics import ENUMERATED, FLIPS
from harness.study.comparisons import main_column
from harness.study.study import Request, Study

from .compared import Checked, Compared, Margins, effects_compared, estimated, primary_compared, rows_compared
from .evidence import Evidence, Findings, best_retrained, gather
from .grid import Grid
from .notes import scale
from .paper.comparison import statement_notes
from .paper.measured import statements_compared
from .values import Table, shown, signed
from .variance import variance_notes
from .verdicts import UNDECIDED, VERDICTS, Judgement, judge
from .words import DASH

if TYPE_CHECKING:
    from harness.stores.stored import StoredRun

VERDICT, EFFECT, INTERVAL, SEEDS = "Verdict", "Effect", "95 % interval", "Seeds"
UNMET = "; premise fails"
FINISHED = ("done", "failed", "diverged")
"""States of trials that have ended by themselves, with or without a value."""
UNRANKED = "unranked"
"""The state of trials that lack a ranking, which no outcome delays; a look waits for it."""
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
    "primary": ("primary", "primary contrasts"),
    "statement": ("statements", "the paper's statements"),
    "rows": ("comparisons", "comparisons of its rows"),
    "effect": ("effects", "effects of its factors"),
}
"""By kind of comparison, the grid's name and its title."""
HEADINGS = {
    "primary": ("Contrast", "Column"),
    "statement": ("Statement", "Rows"),
    "rows": ("Rows", "Column"),
    "effect": ("Factor", "Column"),
}
"""What stands before the verdict, and what behind the interval."""


def compare(
    study: Study,
    preset: Preset,
    counted: Sequence[Evidence],
    margins: Margins,
    finished: Sequence[str] = (*FINISHED, UNRANKED),
) -> tuple[Compared, ...]:
    """All comparisons of a study: primary contrasts, the paper's statements, its own rows as far as these leave any,
    its factors.

    Each ends at the first seed that one of its rows has not finished: which trials finish first, such as those that
    diverge, may depend on what they find.
    """
    asked = (study, preset, counted, margins)
    primary = [*primary_compared(*asked)]
    stated = [compared for _, compared in statements_compared(*asked)]
    own = rows_compared(*asked, covered=[one.key for one in stated])
    first = {one.key: one.margin for one in primary}
    others = [
        replace(one, primary=True, margin=first[one.key]) if one.key in first else one
        for one in (*stated, *own, *effects_compared(*asked))
    ]
    return tuple(estimated(study, counted, [_finished(one, counted, finished) for one in (*primary, *others)]))


def look(
    asked: Iterable[tuple[Study, Preset, Sequence[Request]]], runs: Sequence[StoredRun], margins: Margins
) -> list[Judgement]:
    """Judge these requests of studies as stored runs leave them now, at any number of seeds.

    Of studies with primary contrasts these alone.
    """
    looked: list[Judgement] = []
    for study, preset, requests in asked:
        found = best_retrained(gather(requests, runs))
        judged = judge(compare(study, preset, found, margins, FINISHED), anytime=True)
        looked += [one for one in judged if one.compared.kind == "primary"] or judged
    return looked


def _finished(one: Compared, found: Sequence[Evidence], finished: Sequence[str]) -> Compared:
    """The comparison up to the first seed that one of its rows has not finished."""
    open_seeds = [
        other.request.seed
        for other in found
        if other.state not in finished and other.request.dataset == one.dataset and other.request.row in one.numbers
    ]
    count = sum(seed < min(open_seeds, default=math.inf) for seed in one.seeds)
    if count == len(one.seeds):
        return one
    sides = None if one.sides is None else (one.sides[0][:count], one.sides[1][:count])
    return replace(one, seeds=one.seeds[:count], effects=one.effects[:count], sides=sides, units=())


def verdict_grids(findings: Findings, table: Table, judgements: Sequence[Judgement]) -> list[Grid]:
    """One grid per kind of comparison that the study has."""
    grids = []
    for kind in KINDS:
        if own := [one for one in judgements if one.compared.kind == kind]:
            grids.append(_grid(findings, table, kind, own))
    if grids:
        grids[0] = replace(grids[0], notes=(*grids[0].notes, *variance_notes(findings)))
    return grids


def interval_text(judgements: Sequence[Judgement]) -> str:
    """What the intervals of these comparisons are, and what error rate their verdicts have: for a caption."""
    ways = {one.anytime for one in judgements}
    if not any(one.m for one in judgements):
        return "Interval and verdict: none, for want of seeds."
    shares = {one.compared.primary: one for one in judgements if one.m}
    each = " and ".join(
        f"{100 * one.level:g} % for m = {one.m} {'primary contrasts' if primary else 'comparisons'}"
        for primary, one in sorted(shares.items(), reverse=True)
    )
    words = []
    if False in ways:
        words.append(
            f"Interval: 95 % t interval of the effect. Verdict: t-tests by Holm's rule, at {each} of this study."
        )
    if True in ways:
        words.append(
            f"{'Anytime: ' if False in ways else ''}the interval is a 95 % confidence sequence, the verdict is by "
            f"e-values by Holm's rule, at {each} of this study; both hold at any number of seeds."
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
    texts = compared_numbers(_finite(one), one.compared.digits)
    bounded = f"{texts[1]} to {texts[2]}" if len(texts) == 3 else "unbounded"
    return (texts[0] if texts else DASH), (DASH if one.interval is None else bounded)


def _finite(one: Judgement) -> list[float]:
    """The effect and the limits of its interval, as far as they are numbers."""
    return [number for number in (one.effect, *(one.interval or ())) if number is not None and math.isfinite(number)]


@dataclass(frozen=True)
class Sentence:
    """What a comparison found, in words."""

    verdict: str
    text: str


def sentences(findings: Findings, judgements: Sequence[Judgement]) -> list[Sentence]:
    """One sentence per primary contrast; without any, per comparison that is decided or leans, or one for all."""
    own = [one for one in judgements if one.compared.kind == "primary"]
    own = own or [one for one in judgements if one.decided or one.leans]
    tested = [one for one in judgements if one.interval is not None]
    if not own and tested:
        seeds = _seeds(max(len(one.compared.seeds) for one in tested))
        return [Sentence(UNDECIDED, f"No difference between rows is decided with {seeds}.")]
    return [Sentence(one.verdict, in_a_sentence(findings, one)) for one in own]


def in_a_sentence(findings: Findings, one: Judgement) -> str:
    """A comparison in words: its effect, its interval, its seeds, the verdict, and the seeds that would decide it."""
    compared = one.compared
    what = compared.rows if compared.kind == "statement" else compared.name or compared.rows
    if one.effect is None:
        return f"{what}: no data on {compared.dataset} yet."
    sign, verb = (1, "improved") if one.effect >= 0 else (-1, "worsened")
    numbers = compared_numbers([sign * number for number in _finite(one)], compared.digits)
    effect, *limits = (number.removeprefix("+") for number in numbers)
    within = [" to ".join(limits[::sign])] if limits else ["unbounded"] if one.interval else []
    inside = ", ".join([*within, _seeds(len(compared.seeds))])
    return (
        f"{what} {verb} {compared.column} by {effect} ({inside}) on {compared.dataset}: "
        f"{verdict_text(one)}{_more_seeds(findings, one)}."
    )


def more_seeds(findings: Findings, one: Judgement) -> tuple[float, int] | None:
    """The effect to find, and how many more seeds decide it with a power of 80 %; None if decided, or not known."""
    effect = effect_to_find(findings, one.compared)
    needed = None if one.decided or effect is None else one.seeds_for(effect)
    return None if effect is None or needed is None else (effect, max(0, needed - len(one.compared.seeds)))


def effect_to_find(findings: Findings, one: Compared) -> float | None:
    """The effect that seeds are counted for, never the observed one: planning for that repeats its luck.

    The margin, or the effect of the study's pilot, or the paper's, or 50 units of the column's last digit.
    """
    pilot, main = findings.study.pilots.get(findings.preset.name), main_column(findings.study)
    expected = pilot.effect if pilot and main and one.metric == main.metric else one.printed
    usual = None if one.digits is None else 50 / 10**one.digits
    return one.margin or (None if not expected else abs(expected)) or usual


def _more_seeds(findings: Findings, one: Judgement) -> str:
    if one.decided:
        return ""
    if len(one.compared.seeds) == 1:
        return "; one seed decides nothing"
    if (found := more_seeds(findings, one)) is None:
        return ""
    effect, more = found
    size = f"{float(compared_numbers([effect], one.compared.digits)[0]):g}"
    if not more:
        return f"; an effect of {size} would be decided with 80 % probability by so many seeds"
    return f"; with {more:,} more seed{'s' * (more != 1)} an effect of {size} would be decided with 80 % probability"


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count != 1)}"


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
    first = compared.rows if compared.kind == "rows" else compared.name
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
            "primary": "What the study is about, declared before its runs. Supported: the contrast makes the column's "
            "value better.",
            "statement": "An effect above 0 speaks for the statement. One seed decides nothing.",
            "rows": "Supported: the first row is better than the second, by the column's rule. One "
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
