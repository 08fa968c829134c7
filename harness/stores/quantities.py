"""What can be shown of a run, as the types of `harness.stores.schema` say it: columns, numbers and curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, is_typeddict

from harness.stores.schema import CURVES, JUDGED_BY, OBSERVED, PANEL, Cost, Curve, Needs, Result, Shown
from harness.stores.shapes import alternatives, keys

Curved = TypeVar("Curved")


def described(kind: Any) -> dict[str, str]:
    """The meaning of every key, in order."""
    return {key: get_args(hint)[1] for key, hint in keys(kind)}


def columns(kind: Any) -> dict[str, type]:
    """The columns of a document of that type and their types: nested keys are joined by underscores.

    A section that may be null also has a column that says whether it is there. Curves have none, and keys that differ
    from run to run (the stages of `stage_seconds`) have theirs where they occur.
    """
    return {name: shown for name, shown, _ in _columns(kind)}


def column_meanings(kind: Any) -> dict[str, str]:
    """The meaning of every column; a star stands for keys that differ from run to run."""
    found = {name: meaning for name, _, meaning in _columns(kind)}
    return found | {f"{key}_*": text for key, text in described(kind).items() if key in open_sections()}


def _columns(kind: Any, about: str = "") -> Iterator[tuple[str, type, str]]:
    """Name, type and meaning of every column; the meanings begin with what the document is about."""
    before = f"{about}: " if about else ""
    for key, hint in keys(kind):
        plain, meaning, *notes = get_args(hint)
        choices = [one for one in alternatives(plain) if one is not NoneType]
        if is_typeddict(choices[0]):
            optional = len(choices) < len(alternatives(plain))
            if optional:
                yield key, bool, meaning
            inside = _columns(choices[0], "" if optional else meaning)
            yield from ((f"{key}_{inner}", own, text) for inner, own, text in inside)
        elif get_origin(choices[0]) is not dict:
            shown = next((note.kind for note in notes if isinstance(note, Shown)), None)
            yield key, shown or (choices[0] if choices[0] in (float, int, str, bool) else object), before + meaning


def flat(kind: Any, document: Mapping[str, Any]) -> dict[str, Any]:
    """A document of that type with each section that may be null as two: whether it is there, and its keys.

    Curves are left out. The rest, keys that the type does not know included, stays as it is.
    """
    sections = _sections(kind)
    found: dict[str, Any] = {}
    for key, value in document.items():
        if key in sections:
            found[key] = value is not None
            found |= {f"{key}_{inner}": item for inner, item in (value or {}).items()}
        elif key != OBSERVED:
            found[key] = value
    return found


def needing(setting: str) -> tuple[str, ...]:
    """The keys of a result that are computed only with that setting of `rank`."""
    return tuple(key for key, hint in keys(Result) if Needs(setting) in get_args(hint))


def left_out(rank: Any) -> tuple[str, ...]:
    """The keys of a result that these settings of `rank` do not ask for."""
    settings = {note.setting for _, hint in keys(Result) for note in get_args(hint) if isinstance(note, Needs)}
    absent = {key for setting in settings if getattr(rank, setting) in (None, False) for key in needing(setting)}
    return tuple(key for key, _ in keys(Result) if key in absent)


@lru_cache(maxsize=1)
def numbers() -> tuple[str, ...]:
    """The keys of result and cost that hold one number, as a study's columns name them: dots between nested keys."""
    return tuple(key for kind in (Result, Cost) for key in _numbers(kind))


def few_numbers() -> list[str]:
    """The same, with one name for all of the panel: a list for readers."""
    return list(dict.fromkeys(f"{PANEL}.…" if name.startswith(f"{PANEL}.") else name for name in numbers()))


def _numbers(kind: Any) -> Iterator[str]:
    for key, hint in keys(kind):
        for one in alternatives(get_args(hint)[0]):
            if is_typeddict(one):
                yield from (f"{key}.{inner}" for inner in _numbers(one))
            elif one in (float, int):
                yield key


def open_sections() -> list[str]:
    """The keys of result and cost whose own keys differ from run to run, such as the seconds of each stage."""
    kinds = {key: get_args(hint)[0] for kind in (Result, Cost) for key, hint in keys(kind)}
    return [key for key, plain in kinds.items() if get_origin(plain) is dict and key != OBSERVED]


def curve_of(name: str) -> Curve | None:
    """The curve of that name."""
    return next((one for one in CURVES if _matches(one, name)), None)


def curve_names() -> list[str]:
    """The names of all curves; a star stands for whole numbers."""
    return [name for one in CURVES for name in ([one.name.replace("*", end) for end in one.ends] or [one.name])]


def curves_of(observed: Mapping[str, Curved], own: str | None, ranking: str) -> dict[str, Curved]:
    """The curves that a ranking shows, of those that a run with the ranking `own` has observed.

    A curve that is measured by a ranking belongs to the run's own one, unless its name has the key of another.
    """
    named = ((*name.partition(JUDGED_BY)[::2], points) for name, points in observed.items())
    return {plain: one for plain, other, one in named if (other or own) == ranking or not (other or is_judged(plain))}


def is_judged(name: str) -> bool:
    """Whether the ranking of a run measures the curve of that name. Unknown curves are measured by the training."""
    return (curve := curve_of(name)) is not None and curve.judged


def _matches(curve: Curve, name: str) -> bool:
    before, star, _ = curve.name.partition("*")
    end = name.removeprefix(before)
    if not star or not name.startswith(before):
        return name == curve.name
    return end in curve.ends if curve.ends else end.isdigit()


@lru_cache(maxsize=64)
def _sections(kind: Any) -> frozenset[str]:
    """The keys whose value is a document of its own or null."""
    hints = {key: alternatives(get_args(hint)[0]) for key, hint in keys(kind)}
    return frozenset(key for key, kinds in hints.items() if NoneType in kinds and any(map(is_typeddict, kinds)))
