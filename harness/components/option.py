"""Options of components and fields of configuration sections, as stored text. Imports nothing heavy.

A trial's identity is the text of its configuration. An option that is added to a component later would change the text,
and so the key, of every stored run. So such an option is declared with `added`: while it has its default, it is left
out of the text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

_ADDED = {"added": True}


def added(default: Any) -> Any:
    """The default of a dataclass field that was added after runs were stored without it."""
    return dataclasses.field(default=default, metadata=_ADDED)


def document(value: Any) -> Any:
    """A dataclass as plain types, without the fields that were `added` and have their default."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: document(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if not (field.metadata.get("added") and getattr(value, field.name) == field.default)
        }
    if isinstance(value, Mapping):
        return {key: document(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [document(item) for item in value]
    return value
