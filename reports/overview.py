"""What a whole report rests on and what it shows: for the head of a page. Knows no format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .comparison import UNMET, effect_texts, verdict_text
from .verdicts import VERDICTS, Judgement

if TYPE_CHECKING:
    from .report import Section

KINDS = {
    "statement": ("statement of the paper", "statements of the paper"),
    "primary": ("primary contrast", "primary contrasts"),
    "rows": ("comparison of rows", "comparisons of rows"),
    "effect": ("effect of a factor", "effects of factors"),
}
"""By kind of comparison, what one and what several are called."""
_ORDER = list(KINDS)
FACTS = {"commit": "Commits", "packages": "Versions", "host": "Hosts", "cpu": "Processors", "gpus": "GPUs"}
"""By key of a machine in `provenance.describe`, the heading."""
COMMIT = 12
"""Characters of a commit that are shown."""


@dataclass(frozen=True)
class Tally:
    """How many comparisons of one kind have which verdict."""

    name: str
    counts: tuple[tuple[str, int], ...]
    """Every verdict that occurs, in the order of `verdicts.VERDICTS`."""
    leaning: int
    """How many of the undecided lean one way."""
    unmet: int
    """For how many a premise fails."""

    @property
    def remarks(self) -> list[str]:
        """What the counts do not say."""
        leaning = [f"{self.leaning} lean{'s' * (self.leaning == 1)}"] if self.leaning else []
        return leaning + ([f"a premise fails for {self.unmet}"] if self.unmet else [])

    @property
    def total(self) -> int:
        return sum(count for _, count in self.counts)


@dataclass(frozen=True)
class Notable:
    """A comparison that the runs decide, or would decide as the only one."""

    study: str
    verdict: str
    rest: str
    """Where it leans, and whether a premise fails."""
    text: str
    rows: str
    effect: str
    interval: str
    where: str


def tallies(judgements: Sequence[Judgement]) -> list[Tally]:
    """One tally per kind of comparison that there is."""
    found = []
    for kind, names in KINDS.items():
        own = [one for one in judgements if one.compared.kind == kind]
        counts = Counter(one.verdict for one in own)
        unmet = sum(UNMET in verdict_text(one) for one in own)
        if own:
            found.append(Tally(names[len(own) > 1], _in_order(counts), sum(bool(one.leans) for one in own), unmet))
    return found


def _in_order(counts: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple((verdict, counts[verdict]) for verdict in VERDICTS if counts[verdict])


def notable(sections: Iterable[Section]) -> list[Notable]:
    """The comparisons that are decided, then those that lean; of each, statements first, in the sections' order."""
    found = [
        (section.table.study, one) for section in sections for one in section.judgements if one.decided or one.leans
    ]
    found.sort(key=lambda item: (VERDICTS.index(item[1].verdict), _ORDER.index(item[1].compared.kind), item[1].leans))
    return [
        Notable(
            study,
            one.verdict,
            verdict_text(one).removeprefix(one.verdict).removeprefix(", "),
            one.compared.name or one.compared.rows,
            one.compared.rows if one.compared.name not in ("", one.compared.rows) else "",
            *effect_texts(one),
            f"{one.compared.column}, {one.compared.dataset}",
        )
        for study, one in found
    ]


def facts(sections: Sequence[Section], store: str, described: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was run, where, and with what, as headings and texts. `described` is that of `provenance.describe`."""
    requests = [one.request for section in sections for one in section.findings.counted]
    runs = list(described["runs"].values())
    configs = [request.trial.config for request in requests]
    found = {
        "Store": store,
        "Preset": _listed(section.table.preset for section in sections),
        "Spaces": _listed(config.space for config in configs),
        "Data sets": _listed(request.dataset for request in requests),
        "Methods": _listed(config.method.name for config in configs),
        "Seeds": _listed(str(seed) for seed in sorted({request.seed for request in requests})),
        "Runs": f"{len(runs)} behind {len(sections)} stud{'y' if len(sections) == 1 else 'ies'}",
        "When": _when([run[key] for run in runs for key in ("started", "stopped") if run[key]]),
    }
    for key, heading in FACTS.items():
        texts = [machine.get(key) or "" for machine in described["machines"]]
        found[heading] = _listed(_short(text) if key == "commit" else text for text in texts)
    return [(heading, text) for heading, text in found.items() if text]


def _when(times: Sequence[str]) -> str:
    """From when to when, in minutes; the day once if it is the same."""
    if not times:
        return ""
    (day, start), (last, end) = (text[:16].split("T") for text in (min(times), max(times)))
    return f"{day} {start} to {end if day == last else f'{last} {end}'} UTC"


def _short(commit: str) -> str:
    name, _, rest = commit.partition(" ")
    return f"{name[:COMMIT]} {rest}".strip()


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(filter(None, dict.fromkeys(texts)))
