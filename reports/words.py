"""Compared rows in words: first what they share, then what is different. Knows no study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .paper.statements import Pair, Side, Term

DASH = "–"
METRIC = "metric"


def in_words(pair: Pair) -> str:
    """The rows in words: first the shared labels, then the different ones."""
    every = [_named(term) for side in pair.sides for term in side.terms]
    shared = [name for name in every[0] if all(labels[name] == every[0][name] for labels in every)]
    common = ", ".join(_words(every[0], [name for name in shared if name != METRIC]))
    against = " against ".join(_side(side, shared) for side in pair.sides)
    return ": ".join(filter(None, [common, against]))


def without(pair: Pair, names: Sequence[str]) -> Pair:
    """The same pair without some labels: what pairs that differ only in these have in common."""

    def term(one: Term) -> Term:
        return Term({name: label for name, label in one.labels.items() if name not in names}, one.metric)

    sides = [Side(term(side.term), None if side.less is None else term(side.less)) for side in pair.sides]
    return Pair(sides[0], sides[1] if len(sides) == 2 else None)


def _named(term: Term) -> dict[str, str | bool]:
    """A row's labels and its metric, since two sides may differ only in the metric."""
    return {**term.labels, METRIC: term.metric}


def _side(side: Side, shared: Sequence[str]) -> str:
    texts = [", ".join(_words(_named(one), [name for name in _named(one) if name not in shared])) for one in side.terms]
    return texts[0] if len(texts) == 1 else f"({texts[0]} less {texts[1]})"


def _words(labels: Mapping[str, str | bool], names: Sequence[str]) -> Iterator[str]:
    for name in names:
        label = labels[name]
        if isinstance(label, bool):
            yield name if label else f"no {name}"
        elif label != DASH:
            # A bare number says nothing without its name.
            yield f"{name} = {label}" if label[:1].isdigit() else label
