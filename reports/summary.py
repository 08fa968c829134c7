"""What the verdicts of a study rest on, in a few lines below its table: the premises of the paper's statements, and the
power that the plan had."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.statistics import t_power
from harness.study.comparisons import Weights, main_column, primary_contrasts
from harness.study.study import Study

from .compared import Checked
from .comparison import compared_numbers
from .evidence import Findings
from .verdicts import Judgement


def summary(findings: Findings, judgements: Sequence[Judgement]) -> Iterator[str]:
    """The lines; none for a study without primary contrasts."""
    primary = [one for one in judgements if one.compared.kind == "primary"]
    if not primary:
        return
    checks = dict.fromkeys(check for one in judgements for check in one.compared.premises)
    if checks:
        yield f"Premises of the paper's statements: {'; '.join(_premises(list(checks)))}."
    yield from _power(findings, primary)


def _premises(checks: Sequence[Checked]) -> Iterator[str]:
    """A text for each premise: whether it holds, and for which methods."""
    for premise in dict.fromkeys(check.premise for check in checks):
        own = [check for check in checks if check.premise == premise]
        words = []
        for holds, word in ((True, "holds"), (False, "fails"), (None, "is not known")):
            some = [check for check in own if check.holds is holds]
            about = ", ".join(dict.fromkeys(check.about for check in some if check.about))
            numbers = ", ".join(dict.fromkeys(check.numbers for check in some if check.numbers and not check.about))
            if some:
                words.append(word + (f" for {about}" if about else "") + (f" ({numbers})" if numbers else ""))
        yield f"{premise}: {', '.join(words)}"


def _power(findings: Findings, primary: Sequence[Judgement]) -> Iterator[str]:
    """The probability that the planned seeds decide an effect: by the study's pilot, or else by these runs."""
    study, preset = findings.study, findings.preset
    weights = {one.name: one.weights for one in primary_contrasts(study)}
    pilot, n, column = study.pilots.get(preset.name), preset.seeds, main_column(study)
    main = column.metric if column else ""
    texts = []
    for one in primary:
        compared, effect = one.compared, one.compared.printed if pilot is None else pilot.effect
        if effect is None or (compared.estimate is None if pilot is None else compared.metric != main):
            continue
        if pilot is not None:
            own = weights[compared.name]
            deviation = pilot.deviation * sum(weight**2 for weight in own.values()) ** 0.5
            each = float(_rows(study, own))
        else:
            assert one.spread is not None
            deviation, each = one.spread
        power = t_power(effect / deviation, n, one.level / len(primary), each)
        size = compared_numbers([effect], compared.digits)[0]
        texts.append(f"{size} on {compared.column} by {compared.name} with probability {power:.2f}")
    if texts:
        runs = "these runs, and effects by the paper: no pilot is declared"
        source = f"the pilot ({pilot.source})" if pilot else runs
        seeds = f"{n} seed{'s' * (n != 1)}"
        yield f"Power of the plan, {seeds}, with deviations by {source}. It finds {'; '.join(texts)}."


def _rows(study: Study, weights: Weights) -> int:
    """The rows whose deviations tell the error of a contrast: those of the methods compared; 1 without groups."""
    if study.group is None:
        return 1
    labels = {study.rows[row].labels[study.group] for row in weights}
    return sum(row.source == "runs" and row.labels[study.group] in labels for row in study.rows)
