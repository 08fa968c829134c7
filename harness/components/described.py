"""The fields of a dataclass as its source describes them: type, default, meaning, and what is allowed. For readers.

A field's meaning is the string below it in the source. The class itself decides what is allowed: values that no
sensible range has are tried, and the class's own message says what it accepts. Knows no particular class.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import types
from dataclasses import dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from harness.components.option import meanings
from harness.errors import UserError

PROBES: dict[type, tuple[Any, ...]] = {int: (-(10**6), 10**6), float: (-1e6, 1e6), str: ("?",)}
"""Values that are tried, by type: outside of sensible ranges, and small enough for a class that makes lists of them."""

WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false", tuple: "list"}


@dataclass(frozen=True)
class Option:
    """A field of a dataclass."""

    name: str
    kind: str
    """Its type in words; empty for a type that has none."""
    default: str | None
    """As JSON text; None if there is none."""
    meaning: str
    allowed: tuple[str, ...]
    """What the class accepts, in its own words; empty where it does not check."""


def options(cls: type) -> list[Option]:
    """The fields of a dataclass; none of a class that is not one."""
    if not dataclasses.is_dataclass(cls):
        return []
    texts, hints = meanings(cls), _hints(cls)
    return [
        Option(
            field.name,
            kind_of(hints.get(field.name)),
            _default(field),
            texts.get(field.name, ""),
            _allowed(cls, field.name, hints.get(field.name)),
        )
        for field in dataclasses.fields(cls)
        if field.init
    ]


def docstring(thing: Any) -> str:
    """The docstring of a class or function, without the text that a dataclass without one gets."""
    text = getattr(thing, "__doc__", None) or ""
    if isinstance(thing, type) and dataclasses.is_dataclass(thing) and text.startswith(f"{thing.__name__}("):
        return ""
    return "\n".join(line.strip() for line in text.strip().splitlines())


def shown(value: Any) -> str:
    """A value as `with` takes it: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def kind_of(hint: Any) -> str:
    """A type in words."""
    plain = _plain(hint)
    word = WORDS.get(get_origin(plain) or plain, "")
    return f"{word} or null" if word and plain is not hint else word


def _hints(cls: type) -> dict[str, Any]:
    with contextlib.suppress(Exception):  # an annotation that cannot be evaluated has no type here
        return get_type_hints(cls)
    return {}


def _plain(hint: Any) -> Any:
    """The type without `None`."""
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [one for one in get_args(hint) if one is not type(None)]
        return kinds[0] if len(kinds) == 1 else hint
    return hint


def _default(field: dataclasses.Field[Any]) -> str | None:
    if field.default is not dataclasses.MISSING:
        return shown(field.default)
    return None if field.default_factory is dataclasses.MISSING else shown(field.default_factory())


def _allowed(cls: type, name: str, hint: Any) -> tuple[str, ...]:
    """What the class says of values that it refuses."""
    found = []
    for probe in PROBES.get(_plain(hint), ()):
        try:
            cls(**{name: probe})
        except (UserError, ValueError) as error:
            if (text := _accepted(str(error), name)) and text not in found:
                found.append(text)
        except Exception:  # not a check of the value
            continue
    return tuple(found)


def _accepted(message: str, name: str) -> str:
    """The part of a message that says what is accepted: "x.name must be at least 1, not -5" says "at least 1"."""
    _, named, said = message.splitlines()[0].partition(f"{name} ")
    if not named:
        return ""
    if "; allowed: " in said:
        return said.partition("; allowed: ")[2]
    said = re.sub(r",? (?:not|got) \S+$", "", said)  # the value that was tried
    return said.removeprefix("must be ").replace("must not be", "not", 1).removeprefix("must ")
