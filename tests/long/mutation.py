"""Mutants of a source file: one small change of the code each, found by its syntax tree.

Left out is what does not change what is computed: docstrings, messages, annotations, `__repr__`, and what is printed.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_NEAR: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_TWINS = {"min": "max", "max": "min", "any": "all", "all": "any", "sorted": "list"}
_TELLING = {"print", "echo", "warn", "debug", "info", "warning", "secho", "cast", "TypeVar"}
"""Functions whose arguments are for a reader, or for the type checker."""
_UNSEEN = {"__repr__", "__str__"}


@dataclass(frozen=True)
class Mutant:
    """A piece of a file and what stands there instead."""

    file: str
    line: int
    """Where the changed statement or expression begins."""
    operator: str
    start: int
    """Offset of the first changed byte; with `end` it says which piece is replaced."""
    end: int
    before: str
    after: str
    text: str
    """The line, and how often the file has it up to there."""

    @property
    def name(self) -> str:
        """Stays the same when other lines of the file change."""
        return f"{self.file}: {self.operator}: {self.before} -> {self.after} | {self.text}"

    def of(self, source: bytes) -> bytes:
        """The file's text with the change."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutants(root: Path, file: str) -> list[Mutant]:
    """Every mutant of the file, in the order of the code. Some may not compile: see `is_other`."""
    source = (root / file).read_bytes()
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    texts = [line.strip() for line in source.decode().splitlines()]
    found = []
    for node, operator, after in _walk(ast.parse(source)):
        start = lines[node.lineno - 1] + node.col_offset
        end = lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        text = texts[node.lineno - 1]
        text += f" ({texts[: node.lineno].count(text)})"
        found.append(Mutant(file, node.lineno, operator, start, end, source[start:end].decode(), after, text))
    return found


def is_other(mutant: Mutant, source: bytes) -> bool:
    """Whether the mutant is a program, and another than the source."""
    try:
        return ast.dump(ast.parse(mutant.of(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


Found = tuple["ast.expr | ast.stmt", str, str]
"""The node that is replaced, the kind of change, and the new text."""


def _walk(node: ast.AST) -> Iterator[Found]:
    if isinstance(node, ast.FunctionDef) and node.name in _UNSEEN:
        return
    if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom):
        return
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.stmt):
        yield from _statements(node)
    if isinstance(node, ast.expr):
        yield from _expressions(node)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_comment", "bases"):
            continue
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Assert) and field == "msg"):
            continue
        if isinstance(node, ast.Call) and _called(node) in _TELLING:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _walk(child)


def _statements(node: ast.stmt) -> Iterator[Found]:
    """Statements dropped, or that give something else back."""
    match node:
        case ast.Expr(value=ast.Call() as call) if _called(call) not in _TELLING:
            yield node, "dropped call", "pass"
        case ast.Raise():
            yield node, "dropped raise", "pass"
        case ast.AugAssign():
            yield node, "dropped assignment", "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, "dropped assignment", "pass"
        case ast.Continue():
            yield node, "break for continue", "break"
        case ast.Break():
            yield node, "continue for break", "continue"
        case ast.Return(value=value) if value is not None and not _is_text(value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield node, "returns None", "return None"
            if isinstance(value, ast.Compare | ast.BoolOp | ast.UnaryOp):
                yield node, "returns the opposite", f"return not ({ast.unparse(value)})"
    if isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.NamedExpr):
        yield node.test, "negated condition", f"(not ({ast.unparse(node.test)}))"


def _expressions(node: ast.expr) -> Iterator[Found]:
    match node:
        case ast.Compare(ops=[one]):
            for name, table in (("boundary", _NEAR), ("comparison", _OPPOSITE)):
                if type(one) in table:
                    yield node, name, _changed(node, ops=[table[type(one)]()])
        case ast.BoolOp(values=values):
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield node, "and/or", _changed(node, op=other)
            for left in range(len(values)):
                rest = [value for place, value in enumerate(values) if place != left]
                yield node, "dropped operand", _changed(node, values=rest) if len(rest) > 1 else _text(rest[0])
        case ast.UnaryOp(op=ast.Not() | ast.USub(), operand=operand):
            yield node, "dropped sign", _text(operand)
        case ast.BinOp(op=op) if type(op) in _ARITHMETIC and not _is_text(node.left) and not _is_text(node.right):
            yield node, "arithmetic", _changed(node, op=_ARITHMETIC[type(op)]())
        case ast.IfExp(test=test):
            yield test, "negated condition", f"(not ({ast.unparse(test)}))"
        case ast.Constant(value=bool() as value):
            yield node, "constant", str(not value)
        case ast.Constant(value=int() | float() as value):
            yield node, "constant", repr(value + 1)
            if value:
                yield node, "constant", "0"
        case ast.Call():
            yield from _calls(node)


def _calls(node: ast.Call) -> Iterator[Found]:
    """Calls of a twin, with swapped arguments, or with one left out."""
    if _called(node) in _TELLING:
        return
    if isinstance(node.func, ast.Name) and node.func.id in _TWINS:
        keywords = [] if node.func.id == "sorted" else node.keywords
        yield node, "twin", _changed(node, func=ast.Name(_TWINS[node.func.id]), keywords=keywords)
    plain = not any(isinstance(argument, ast.Starred) for argument in node.args)
    if plain and len(node.args) >= 2:
        first, second, *rest = node.args
        yield node, "swapped arguments", _changed(node, args=[second, first, *rest])
    for place, keyword in enumerate(node.keywords):
        if keyword.arg is not None and not _is_text(keyword.value):
            kept = [other for at, other in enumerate(node.keywords) if at != place]
            yield node, "dropped argument", _changed(node, keywords=kept)


def _changed(node: ast.expr, **fields: object) -> str:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return _text(changed)


def _text(node: ast.expr) -> str:
    """The expression as it can stand anywhere."""
    return f"({ast.unparse(node)})"


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
