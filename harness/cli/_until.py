"""`run --until decided`: its options, its plans, and what it prints at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import click

from harness.cli._options import WHAT, check_margins, margin_option, option, shared
from harness.errors import UserError

if TYPE_CHECKING:
    from harness.stores.stored import StoredRun
    from harness.study.study import Request
    from harness.work.plan import Asked
    from harness.work.until import Until

MOST = 30


@dataclass
class Ending:
    """When a run ends: with every comparison decided, or with so many seeds."""

    margins: Mapping[str, float]
    most: int
    found: Sequence[Any] = ()
    """The verdicts of the last look."""

    def until(self, asked: Asked, parallel: int, retry: str | None, say: Callable[[str], None]) -> Until:
        """The plans of the run. Raises `UserError` if nothing is compared, or nothing could be decided."""
        from harness.components.preset import get_preset
        from harness.statistics import first_decision
        from harness.work.until import Until

        check_margins(self.margins, asked.studies)
        found = self.look(asked, [])
        if not found:
            names = ", ".join(study.name for study in asked.studies)
            raise UserError(f"there is nothing to decide: no rows are compared in {names}")
        first = min(first_decision(one.m, one.level) for one in found)
        if self.most < first:
            raise UserError(
                f"--max-seeds is {self.most}, but of {len({one.compared.question for one in found})} comparisons "
                f"none can be decided before {first} seeds"
            )
        planned = {study.name: asked.seeds or get_preset(asked.preset, study.about).seeds for study in asked.studies}
        questions = _questions(self, asked)
        return Until(asked, questions, planned.__getitem__, first, self.most, parallel, retry, say)

    def look(self, asked: Asked, runs: Sequence[StoredRun]) -> Sequence[Any]:
        """The verdicts on all comparisons as stored runs leave them."""
        from harness.components.discovery import component
        from harness.components.preset import get_preset
        from harness.study.expansion import expand_stored
        from harness.work.plan import chosen

        presets = {study.name: get_preset(asked.preset, study.about) for study in asked.studies}
        requests: list[Request] = []
        for study in asked.studies:
            requests += expand_stored(study, presets[study.name], lambda: runs, self.most, asked.overrides)
        requests = chosen(requests, asked.only)
        parts = [(s, presets[s.name], [one for one in requests if one.study == s.name]) for s in asked.studies]
        self.found = component("reports.comparison").look(parts, runs, self.margins)
        return self.found


@dataclass(frozen=True)
class Deciding:
    """Whether seeds are added until comparisons are decided."""

    HEADING: ClassVar[str] = WHAT

    until: str | None = option(
        "--until", "Add seeds until every (primary) comparison is decided.", click.Choice(["decided"])
    )
    max_seeds: int | None = option(
        "--max-seeds", f"With --until: the most seeds.  [default: {MOST}]", click.IntRange(2), "N", more=True
    )
    margins: Mapping[str, float] = shared(margin_option)

    def ending(self) -> Ending | None:
        """The ending of the run; None without --until."""
        if self.until is None:
            if self.margins or self.max_seeds is not None:
                raise UserError("--max-seeds and --margin are about comparisons: give --until decided, too")
            return None
        return Ending(self.margins, MOST if self.max_seeds is None else self.max_seeds)


def tell_verdicts(asked: Asked, ending: Ending, quiet: bool) -> None:
    """Print a line per comparison, decided ones first, and how to see them again."""
    from harness.components.discovery import component
    from harness.study.overrides import as_typed

    judgements = ending.found
    comparison, every = component("reports.comparison"), component("reports.verdicts").VERDICTS
    for verdict in () if quiet else every:
        for one in (one for one in judgements if one.verdict == verdict):
            compared = one.compared
            place = f"{compared.column}, {compared.dataset}" + (f", {compared.study}" if len(asked.studies) > 1 else "")
            effect = "{} ({})".format(*comparison.effect_texts(one))
            click.echo(f"{verdict:12} {effect:28} {len(compared.seeds):3} seeds  {compared.rows} ({place})")
    counts = Counter(one.verdict for one in judgements)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in every if counts[verdict])
    noun = "primary contrast" if all(one.compared.primary for one in judgements) else "comparison"
    many = f"{len(judgements)} {noun}{'s' * (len(judgements) != 1)}"
    rate = max(one.level for one in judgements)
    click.echo(f"{many}: {told}; at most {100 * rate:g} % of such studies decide any of these falsely")
    names = " ".join(study.name for study in asked.studies)
    most = max(len(one.compared.seeds) for one in judgements)
    preset = f"--preset {asked.preset} --seeds {max(1, most)} --compare"
    margins = "".join(f" --margin {f'{name}=' if name else ''}{value:g}" for name, value in ending.margins.items())
    overrides = "".join(f" {one}" for one in (["with", *as_typed(asked.overrides)] if asked.overrides else []))
    click.echo(f"`harness report {names} {preset}{margins}{overrides}` shows what they rest on")


def _questions(ending: Ending, asked: Asked) -> Callable[[Sequence[StoredRun]], list[Any]]:
    """The comparisons of stored runs, as `Until` sees them."""
    from harness.work.until import Question

    def questions(runs: Sequence[StoredRun]) -> list[Question]:
        return [
            Question(
                frozenset((one.compared.study, row, one.compared.dataset) for row in one.compared.numbers), one.decided
            )
            for one in ending.look(asked, runs)
        ]

    return questions
