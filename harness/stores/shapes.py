"""Checks documents against the types of `harness.stores.schema`, and derives columns from them.

A document is checked as it is read: ten thousand runs are read at once, so the checks of a type are made once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from harness.errors import DataError
from harness.stores.schema import CURVES, JUDGED_BY, OBSERVED, PANEL, Cost, Curve, Needs, Result, Shown
from harness.stores.trial_text import Form

Curved = TypeVar("Curved")

Check = Callable[[Any], Sequence[tuple[str, str]]]
"""Returns what is wrong with a value: dotted places within it (empty for itself) and reasons."""

WORDS = {
    float: "a number",
    int: "a whole number",
    str: "text",
    bool: "true or false",
    NoneType: "null",
    list: "a list",
    dict: "an object",
}


SCALARS = frozenset({float, int, str, bool, NoneType})
MOST_MET = 1000
"""Maximum number of combinations of types that are remembered per kind of document."""


class _Missing:
    """The type of what stands for a key that is not there."""


MISSING = _Missing()


def problem(kind: Any, document: Any) -> str | None:
    """What is wrong with a document of that type, for the reader; None if nothing is. Unknown keys are no problem."""
    if _fits(kind)(document):
        return None
    wrong = _check(kind)(document)
    return "; ".join(f"{place} {reason}" if place else reason for place, reason in wrong) or None


def require(kind: Any, document: Any, what: str) -> None:
    """Raise `DataError` if the document is not of that type; the message begins with `what`."""
    if (wrong := problem(kind, document)) is not None:
        raise DataError(f"{what}: {wrong}")


def parsed(text: bytes | str, kind: Any = None) -> dict[str, Any]:
    """The JSON object that the text is, of that type if one is given. Raises `DataError` with the reason alone."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not whole JSON: {error}") from error
    if not isinstance(document, dict):
        raise DataError("holds no JSON object")
    if kind is not None and (wrong := problem(kind, document)) is not None:
        raise DataError(wrong)
    return document


def described(kind: Any) -> dict[str, str]:
    """The meaning of every key, in order."""
    return {key: get_args(hint)[1] for key, hint in _keys(kind)}


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
    for key, hint in _keys(kind):
        plain, meaning, *notes = get_args(hint)
        choices = [one for one in _choices(plain) if one is not NoneType]
        if is_typeddict(choices[0]):
            optional = len(choices) < len(_choices(plain))
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
    return tuple(key for key, hint in _keys(Result) if Needs(setting) in get_args(hint))


def left_out(rank: Any) -> tuple[str, ...]:
    """The keys of a result that these settings of `rank` do not ask for."""
    settings = {note.setting for _, hint in _keys(Result) for note in get_args(hint) if isinstance(note, Needs)}
    absent = {key for setting in settings if getattr(rank, setting) in (None, False) for key in needing(setting)}
    return tuple(key for key, _ in _keys(Result) if key in absent)


@lru_cache(maxsize=1)
def numbers() -> tuple[str, ...]:
    """The keys of result and cost that hold one number, as a study's columns name them: dots between nested keys."""
    return tuple(key for kind in (Result, Cost) for key in _numbers(kind))


def few_numbers() -> list[str]:
    """The same, with one name for all of the panel: a list for readers."""
    return list(dict.fromkeys(f"{PANEL}.…" if name.startswith(f"{PANEL}.") else name for name in numbers()))


def _numbers(kind: Any) -> Iterator[str]:
    for key, hint in _keys(kind):
        for one in _choices(get_args(hint)[0]):
            if is_typeddict(one):
                yield from (f"{key}.{inner}" for inner in _numbers(one))
            elif one in (float, int):
                yield key


def open_sections() -> list[str]:
    """The keys of result and cost whose own keys differ from run to run, such as the seconds of each stage."""
    kinds = {key: get_args(hint)[0] for kind in (Result, Cost) for key, hint in _keys(kind)}
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
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _keys(kind: Any) -> Iterator[tuple[str, Any]]:
    """The keys of a type with their annotations, those of its base classes first."""
    return iter(_hints(kind).items())


@lru_cache(maxsize=64)
def _sections(kind: Any) -> frozenset[str]:
    """The keys whose value is a document of its own or null."""
    hints = {key: _choices(get_args(hint)[0]) for key, hint in _keys(kind)}
    return frozenset(key for key, kinds in hints.items() if NoneType in kinds and any(map(is_typeddict, kinds)))


def _choices(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


@lru_cache(maxsize=256)
def _fits(hint: Any) -> Callable[[Any], bool]:
    """Whether a value is of a type, in few steps: nearly all are. `_check` says what is wrong with the others."""
    if get_origin(hint) is Annotated:
        plain = _fits(get_args(hint)[0])
        if (form := _form(hint)) is None:
            return plain
        of_form = form.fits
        return lambda value: plain(value) and (value is None or of_form(value))
    if hint is Any:
        return lambda value: True
    if is_typeddict(hint):
        return _fits_keys(hint)
    if (kinds := _scalars(hint)) is not None:
        return lambda value: type(value) in kinds or _is_among(type(value), kinds)
    if len(choices := _choices(hint)) > 1:
        inner = [_fits(one) for one in choices if one is not NoneType]
        optional = NoneType in choices
        if len(inner) == 1:
            only = inner[0]
            return lambda value: optional if value is None else only(value)
        return lambda value: optional if value is None else any(one(value) for one in inner)
    outer, items = get_origin(hint), get_args(hint)
    if outer is tuple:
        parts = [_fits(one) for one in items]
        return lambda value: (
            type(value) is list
            and len(value) == len(parts)
            and all(part(item) for part, item in zip(parts, value, strict=True))
        )
    item, form = _fits(items[-1]), _form(items[0])
    if outer is list:
        return lambda value: type(value) is list and all(map(item, value))
    return lambda value: (
        type(value) is dict and all(map(item, value.values())) and (form is None or all(map(form.fits, value)))
    )


def _fits_keys(kind: Any) -> Callable[[Any], bool]:
    hints = dict(_keys(kind))
    found = {key: None if _form(hint) else _scalars(hint) for key, hint in hints.items()}
    scalars = {key: kinds for key, kinds in found.items() if kinds is not None}
    required = kind.__required_keys__
    allowed = [kinds if key in required else kinds | {_Missing} for key, kinds in scalars.items()]
    others = [(key, key in required, _fits(hint)) for key, hint in hints.items() if key not in scalars]
    met: set[tuple[type, ...]] = set()

    def fits(value: Any) -> bool:
        if type(value) is not dict:
            return False
        get = value.get
        # Documents of one kind have few combinations of types: most were met before.
        types = tuple(map(type, map(get, scalars, repeat(MISSING))))
        if types not in met:
            if not all(map(_is_among, types, allowed)):
                return False
            if len(met) < MOST_MET:
                met.add(types)
        for key, needed, inner in others:
            item = get(key, MISSING)
            if needed if item is MISSING else not inner(item):
                return False
        return True

    return fits


def _is_among(kind: type, allowed: Container[type]) -> bool:
    """Whether values of that type are allowed. The database has a class of its own for large whole numbers."""
    return kind in allowed or (kind.__base__ in allowed and kind is not bool)


def _scalars(hint: Any) -> frozenset[type] | None:
    """The types of a value that has no parts; None for other hints."""
    plain = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    kinds = {one for choice in _choices(plain) for one in ((float, int) if choice is float else (choice,))}
    return frozenset(kinds) if kinds <= SCALARS else None


def _form(hint: Any) -> Form | None:
    notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((note for note in notes if isinstance(note, Form)), None)


@lru_cache(maxsize=256)
def _check(hint: Any) -> Check:
    """The check of a type."""
    if get_origin(hint) is Annotated:
        return _check_form(_check(get_args(hint)[0]), _form(hint))
    if hint is Any:
        return lambda value: ()
    if is_typeddict(hint):
        return _check_keys(hint)
    choices = _choices(hint)
    if len(choices) > 1:
        return _check_choices(choices)
    outer, items = get_origin(hint), get_args(hint)
    if outer is tuple:
        return _check_parts([_check(one) for one in items])
    if outer in (list, dict):
        return _check_items(outer, _check(items[-1]), _check_form(lambda value: (), _form(items[0])))
    allowed = (float, int) if hint is float else (hint,)

    def check(value: Any) -> Sequence[tuple[str, str]]:
        return () if _is_among(type(value), allowed) else [_is_not(value, hint)]

    return check


def _check_form(plain: Check, form: Form | None) -> Check:
    if form is None:
        return plain

    def check(value: Any) -> Sequence[tuple[str, str]]:
        if wrong := plain(value):
            return wrong
        return () if value is None or form.fits(value) else [("", f"is {_short(value)}, not {form.word}")]

    return check


def _check_keys(kind: Any) -> Check:
    checks = {key: _check(hint) for key, hint in _keys(kind)}
    required = sorted(kind.__required_keys__)

    def check(value: Any) -> Sequence[tuple[str, str]]:
        if type(value) is not dict:
            return [_is_not(value, dict)]
        wrong = [(key, "is missing") for key in required if key not in value]
        for key, inner in checks.items():
            if key in value and (found := inner(value[key])):
                wrong += _inside(key, found)
        return wrong

    return check


def _check_choices(choices: tuple[Any, ...]) -> Check:
    checks = [_check(one) for one in choices if one is not NoneType]
    optional = NoneType in choices

    def check(value: Any) -> Sequence[tuple[str, str]]:
        if value is None and optional:
            return ()
        wrong = [one(value) for one in checks]
        return wrong[0] if all(wrong) else ()

    return check


def _check_parts(parts: Sequence[Check]) -> Check:
    def check(value: Any) -> Sequence[tuple[str, str]]:
        if type(value) is not list or len(value) != len(parts):
            return [("", f"is {_short(value)}, not a list of {len(parts)}")]
        found = ((str(at), part(item)) for at, (part, item) in enumerate(zip(parts, value, strict=True)))
        return next((_inside(at, wrong) for at, wrong in found if wrong), ())

    return check


def _check_items(outer: Any, item: Check, key_check: Check) -> Check:
    def check(value: Any) -> Sequence[tuple[str, str]]:
        if type(value) is not outer:
            return [_is_not(value, outer)]
        items: Iterable[tuple[Any, Any]] = value.items() if outer is dict else enumerate(value)
        for key, inner in items:
            if found := (key_check(key) if outer is dict else ()) or item(inner):
                return _inside(str(key), found)
        return ()

    return check


def _inside(key: str, wrong: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(f"{key}.{place}" if place else key, reason) for place, reason in wrong]


def _is_not(value: Any, kind: type) -> tuple[str, str]:
    return "", f"is {_short(value)}, not {WORDS[kind]}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"
