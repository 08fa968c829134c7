"""Conditions on columns, as text from a user: `train.epochs > 10 and kendall_tau > 0.5`.

pandas evaluates a condition only after a check that it contains nothing but comparisons and arithmetic of
columns and constants: no calls, no attributes, no indexing, no `@`. Imports no pandas.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from harness.errors import InvalidConfiguration, UnknownName

if TYPE_CHECKING:
    import pandas

_ALLOWED = (
    *(ast.Expression, ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.Invert),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.BitAnd, ast.BitOr),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn),
    *(ast.Name, ast.Load, ast.Constant, ast.List, ast.Tuple),
)
LONGEST = 200
"""Characters of an expression that a message shows."""

_LONE_EQUALS = re.compile(r"(?<![=!<>])=(?!=)")
_HINT = 'An expression compares columns with values, e.g. "train.epochs > 10 and kendall_tau > 0.5".'


def select(frame: pandas.DataFrame, expression: str) -> pandas.DataFrame:
    """The rows for which the expression holds. Raises `InvalidConfiguration`."""
    columns = [str(column) for column in frame.columns]
    plain = translate(expression, columns)
    try:
        # pandas compares text with times that have no zone only.
        times = {str(name): frame[name].dt.tz_convert(None) for name in frame.select_dtypes("datetimetz")}
        holds: Any = frame.assign(**times).eval(plain, engine="python", parser="pandas")
    except Exception as error:  # pandas raises many kinds: incomparable types, its own restrictions
        raise InvalidConfiguration(f"cannot evaluate {_cut(expression)}: {_reason(error)}. {_HINT}") from error
    if getattr(holds, "dtype", None) not in ("bool", "boolean"):
        raise InvalidConfiguration(f"{expression!r} is neither true nor false for a run. {_HINT}")
    return frame[holds.fillna(False).astype(bool)]


def translate(expression: str, columns: Iterable[str]) -> str:
    """The expression in column names: `method.name` becomes `method_name`, string literals stay as they are.

    Raises `InvalidConfiguration` for anything but comparisons and arithmetic, and for a name that is
    not a column.
    """
    columns = list(columns)
    plain = underscored(expression)
    try:
        tree = ast.parse(plain, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        equals = " Equality is written `==`." if _LONE_EQUALS.search(plain) else ""
        raise InvalidConfiguration(f"cannot read {_cut(expression)}: {_reason(error)}.{equals} {_HINT}") from error
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            raise InvalidConfiguration(
                f"{expression!r}: {type(node).__name__} is not allowed in an expression. {_HINT}"
            )
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Mod) and _grows(node):
            verb = "multiplied" if isinstance(node.op, ast.Mult) else "divided"
            raise InvalidConfiguration(f"{_cut(expression)}: only numbers can be {verb}. {_HINT}")
        if isinstance(node, ast.Name) and node.id not in columns:
            raise _unknown(node, tree, columns)
    return plain


def underscored(text: str) -> str:
    """The text with dotted names joined by underscores instead of dots."""
    pieces: list[str] = []
    end = (1, 0)
    joining = False
    try:
        for token in tokenize.generate_tokens(io.StringIO(text.strip()).readline):
            if token.type in (tokenize.NEWLINE, tokenize.NL, tokenize.ENDMARKER):
                continue
            if token.type == tokenize.COMMENT:
                raise InvalidConfiguration(f"{text!r}: a comment is not allowed in an expression. {_HINT}")
            after_name = bool(pieces) and pieces[-1].isidentifier()
            if token.string == "." and after_name and not joining:
                joining = True
            elif joining and token.type == tokenize.NAME:
                pieces[-1] += f"_{token.string}"
                joining = False
            else:
                gap = pieces and (token.start[0] > end[0] or token.start[1] > end[1])
                pieces += [" ", token.string] if gap else [token.string]
                if joining:
                    raise _lone_dot(text)
            end = token.end
    except (tokenize.TokenError, SyntaxError) as error:
        raise InvalidConfiguration(f"cannot read {text!r}: {error.args[0]}. {_HINT}") from error
    if joining:
        raise _lone_dot(text)
    return "".join(pieces)


def _lone_dot(text: str) -> InvalidConfiguration:
    return InvalidConfiguration(f"cannot read {_cut(text)}: a dot must be between two names. {_HINT}")


def _grows(operation: ast.BinOp) -> bool:
    """Whether text or a list is repeated, or text is formatted by `%`: either could take all memory."""
    parts = [node.value if isinstance(node, ast.Constant) else node for node in ast.walk(operation)]
    return any(isinstance(part, str | bytes | ast.List | ast.Tuple) for part in parts)


def _reason(error: Exception) -> str:
    """Why an expression cannot be used, in words."""
    if isinstance(error, MemoryError):
        return "it is too deep, or needs too much memory"
    return (error.msg if isinstance(error, SyntaxError) else str(error)) or type(error).__name__


def _cut(text: str) -> str:
    """The expression as a message shows it: a long one in part."""
    return repr(text if len(text) <= LONGEST else f"{text[:LONGEST]}…")


def _unknown(name: ast.Name, tree: ast.Expression, columns: list[str]) -> InvalidConfiguration:
    """The error for a name that is not a column. One that a column is compared with may be text without its quotes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and name in (*node.comparators, *_inside(node.comparators)):
            column = node.left.id if isinstance(node.left, ast.Name) else None
            if column in columns:
                return InvalidConfiguration(
                    f"{name.id!r} is not a column. Text needs quotes: {column} == '{name.id}'. {_HINT}"
                )
    known = f"{UnknownName.among('column', name.id, columns)}"
    return InvalidConfiguration(f"{known}. `harness query --columns all` shows all")


def _inside(nodes: list[ast.expr]) -> list[ast.expr]:
    """The members of lists and tuples."""
    return [member for node in nodes if isinstance(node, ast.List | ast.Tuple) for member in node.elts]
