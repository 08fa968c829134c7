"""Checks documents against types such as those of `harness.stores.schema`.

A document is checked as it is read: ten thousand runs are read at once, so the checks of a type are made once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from harness.errors import DataError
from harness.stores.trial_text import Form

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


@lru_cache(maxsize=64)
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def keys(kind: Any) -> Iterator[tuple[str, Any]]:
    """The keys of a type with their annotations, those of its base classes first."""
    return iter(_hints(kind).items())


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The types that a value may have one of."""
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
    if len(choices := alternatives(hint)) > 1:
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
    hints = dict(keys(kind))
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
    kinds = {one for choice in alternatives(plain) for one in ((float, int) if choice is float else (choice,))}
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
    choices = alternatives(hint)
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
    checks = {key: _check(hint) for key, hint in keys(kind)}
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
