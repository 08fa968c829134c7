"""Options of components and fields of configuration sections, as stored text. Imports nothing heavy.

A trial's identity is the text of its configuration. An option that is added to a component later would change the text,
and so the key, of every stored run. So such an option is declared with `added`: while it has its default, it is left
out of the text.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import textwrap
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


@functools.cache
def meanings(kind: type) -> dict[str, str]:
    """The texts under the fields of a dataclass and of its bases, by field; a field without a text is left out."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(one):
            continue
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
        except (OSError, TypeError, SyntaxError, ValueError):  # made by code: there is no source
            continue
        for field, text in itertools.pairwise(getattr(tree, "body", ())):
            named = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if named and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[field.target.id] = " ".join(str(text.value.value).split())
    return found
