"""Parses overrides (`with key=value …`) and filters (`--only key=value,…`) that users type. Imports no torch."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.documents import flatten
from harness.errors import InvalidConfiguration, UnknownName

Filter = Mapping[str, Sequence[str]]
"""Keys with their wanted values, as typed."""


def parse_updates(words: Iterable[str]) -> dict[str, Any]:
    """Overrides in Sacred's syntax: a value is a Python literal, or else a string.

    Raises `InvalidConfiguration` for a word that is not an override, and for values that JSON cannot represent.
    """
    updates: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key.strip() or key.startswith("-"):
            raise InvalidConfiguration(
                f"{word!r} is not an override. After `with`, give key=value pairs (e.g. train.epochs=10); "
                "put options before `with`."
            )
        if key == "seed":
            raise InvalidConfiguration("seed cannot be set by `with`: a study runs all seeds from 0 on; use --seeds")
        try:
            # Through JSON, as a worker gets it: tuples become lists, and only plain types are accepted.
            updates[key.strip()] = json.loads(json.dumps(_literal(text)))
        except TypeError as error:
            raise InvalidConfiguration(
                f"{word}: {error}; allowed are numbers, strings, lists, true and null"
            ) from error
    return updates


def as_typed(overrides: Mapping[str, Any]) -> list[str]:
    """The words that `parse_updates` reads as these overrides."""
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in overrides.items()]


def parse_only(texts: Iterable[str]) -> dict[str, list[str]]:
    """Filters: `train.epochs=10,20,seed=0` wants one of the two numbers of epochs, and seed 0."""
    wanted: dict[str, list[str]] = {}
    for text in texts:
        values: list[str] | None = None
        for piece in text.split(","):
            key, equals, value = piece.partition("=")
            if equals:
                values = wanted.setdefault(key.strip(), [])
                values.append(value.strip())
            elif values is None:
                raise InvalidConfiguration(f"--only {text}: expected key=value,…, for instance train.epochs=10")
            else:
                values.append(piece.strip())
    return wanted


def matching(configs: Sequence[Mapping[str, Any]], only: Filter) -> list[bool]:
    """Which configurations have one of the wanted values at every key (`method.name` or `method_name`).

    Raises `UnknownName` for a key that none has, `InvalidConfiguration` when none is left.
    """
    flat = [flatten(config) for config in configs]
    chosen = [True] * len(flat)
    for typed, values in only.items():
        key = {name.replace(".", "_"): name for one in flat for name in one}.get(typed.replace(".", "_"))
        if key is None:
            raise UnknownName.among("configuration key", typed, {name for one in flat for name in one})
        wanted = [[value, _literal(value)] for value in values]
        fits = [any(one.get(key) in pair for pair in wanted) if key in one else False for one in flat]
        if not any(fits):
            there = ", ".join(sorted({str(one[key]) for one in flat if key in one}))
            raise InvalidConfiguration(f"--only {typed}={','.join(values)}: no trial has it; existing values: {there}")
        chosen = [a and b for a, b in zip(chosen, fits, strict=True)]
    if not any(chosen):
        wanted_all = ",".join(f"{key}={','.join(values)}" for key, values in only.items())
        raise InvalidConfiguration(f"--only {wanted_all}: no trial has all of these")
    return chosen


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {"true": True, "false": False, "null": None}.get(text, text)
