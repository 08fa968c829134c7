"""The code of a Python file: one text, whatever the comments, docstrings and formatting, and what the file imports.

The text is our own: `ast.unparse`, `ast.dump` and the tokens of f-strings differ between Python versions, but the text
must be the same on all of them, since hashes of it are stored (`tests/test_code.py` holds some). It lists the syntax
tree: class names, and fields by name. A field that is None, empty or 0 is left out, so that fields which later versions
of Python add do not show while they are unused. Constants are written by `ascii` (what `repr` escapes depends on the
version's Unicode tables), and integers in hexadecimal (`repr` refuses very long ones).
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

DIGITS = 16
"""Hexadecimal digits of a stored hash of code."""

MARK = "code:"
"""What the version of a user's component begins with. Earlier versions of the harness stored the hash of the file's
text, without it."""

_LEFT_OUT = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
"""Fields that follow from the rest of the tree, or are formatting (`u"…"`)."""


UNNAMED_PART = "source"
"""Before the version of a copied source file whose part in the trial is not recorded."""


@dataclass(frozen=True)
class Import:
    """One imported module: how many packages up it starts, its dotted name, and the names taken from it."""

    level: int
    module: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Code:
    """The code of one file."""

    digest: str
    imports: tuple[Import, ...]


@dataclass(frozen=True)
class RecordedCode:
    """The code of one of a run's components that are the user's own."""

    version: str
    """As the run's identity has it."""
    code: str
    """The version of the same code as it is written today, as far as the run's files show it."""
    equal: frozenset[str] = frozenset()
    """Versions that are declared equal to that (`harness store accept`)."""

    def is_like(self, today: str) -> bool:
        """Whether a component with that version has the same code, or is declared to.

        Earlier versions of the harness recorded the registering file alone, so only that is compared with theirs.
        """
        if today == self.code or today in self.equal:
            return True
        return not self.version.startswith(MARK) and own_part(today) == self.code


@lru_cache(maxsize=1024)
def code_of(source: bytes) -> Code | None:
    """The code of a file with that content; None if this version of Python cannot parse it."""
    try:
        tree = ast.parse(source)
        text = "".join(_written(tree))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Code(hashlib.sha256(text.encode()).hexdigest()[:DIGITS], tuple(_imports(tree)))


def text_digest(source: bytes) -> str:
    """The hash of the text itself: the version of a user's component in runs of earlier versions of the harness."""
    return hashlib.sha256(source).hexdigest()[:DIGITS]


def own_part(version: str) -> str:
    """The part of a version that is about the registering file alone."""
    return version.partition("+")[0]


def version_of_text(source: bytes) -> str | None:
    """The version of a registering file with that content, as far as it is about that file; None if it has none."""
    code = code_of(source)
    return None if code is None else MARK + code.digest


def recorded_code(versions: Mapping[str, str], texts: Iterable[bytes]) -> dict[str, list[str]]:
    """By part, the version that a run was made with, and that of the same code as it is written today.

    `texts` are the run's copies of its source files: what they hold under an old version says which code that is.
    """
    old = {version for version in versions.values() if not version.startswith(MARK)}
    known = {text_digest(text): text for text in texts} if old else {}
    codes = {version: version_of_text(known[version]) for version in old & known.keys()}
    return {part: [version, codes.get(version) or version] for part, version in versions.items()}


def _written(tree: ast.AST) -> Iterator[str]:
    """The canonical text in pieces. Without recursion: a long sum is a deep tree."""
    waiting: list[Any] = [tree]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, ast.Constant):
            yield f"(Constant {_constant(one.value)})"
        elif isinstance(one, ast.AST):
            yield f"({type(one).__name__}"
            fields = [(name, value) for name, value in _fields(one) if value is not None and value != [] and value != 0]
            waiting.append(")")
            for name, value in reversed(fields):
                waiting += [value if isinstance(value, list | ast.AST) else _constant(value), f" {name}="]
        elif isinstance(one, list):
            waiting.append("]")
            waiting += [piece for item in reversed(one) for piece in (item, " ")]
            waiting.append("[")
        else:
            yield _constant(one)


def _fields(node: ast.AST) -> Iterator[tuple[str, Any]]:
    for name in node._fields:
        if name in _LEFT_OUT:
            continue
        value: Any = getattr(node, name, None)
        if isinstance(node, ast.JoinedStr):
            value = list(_merged(value))
        elif isinstance(value, list):
            value = [one for one in value if not _says_nothing(one)]
        yield name, value


def _says_nothing(node: Any) -> bool:
    """Whether a node is a string as a statement: a docstring, or the text below a field."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _merged(values: list[ast.expr]) -> Iterator[ast.expr]:
    """The parts of an f-string with neighbouring texts joined, and without empty ones: versions split them differently.

    An f-string inside one, as `"a" f"{b}"` in a format, is its parts.
    """
    text = ""
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            text += value.value
            continue
        if text:
            yield ast.Constant(text)
            text = ""
        yield value
    if text:
        yield ast.Constant(text)


def _constant(value: Any) -> str:
    if type(value) is int:
        return hex(value)
    return ascii(value)


def _imports(tree: ast.AST) -> Iterator[Import]:
    """Every import statement of the file, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.level, node.module or "", tuple(alias.name for alias in node.names))
