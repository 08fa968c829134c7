"""Documents of plain JSON types: checks against a type, canonical text, flattening, fixed words, values that JSON
cannot represent, and text for readers: amounts, tables that fit the terminal.

msgspec checks documents and never produces them: it drops unknown keys and turns 2 into 2.0. Of the harness only
`harness.errors` is imported.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, NotRequired, Required, get_args, get_origin, get_type_hints, is_typeddict

from harness.errors import DataError, HarnessError

NEWER = "this version of the harness reads up to"
"""In the message about a document of a newer schema."""


@dataclass(frozen=True)
class Newest:
    """Notes the newest version that is read, on a key `schema`."""

    version: int


def problem(kind: Any, document: Any) -> str | None:
    """What is wrong with a document of that type, for the reader; None if nothing is. Unknown keys are allowed."""
    import msgspec  # here: what never reads a document starts without it

    newest = _newest(kind)
    if newest is not None and isinstance(document, dict):
        version = document.get("schema")
        if isinstance(version, int) and not isinstance(version, bool) and version > newest:
            return f"has schema {version}; {NEWER} {newest}: update it"
    try:
        msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at ")
        place = place.strip("`").removeprefix("$").removeprefix(".")
        if missing := _MISSING.fullmatch(reason):
            return f"{place}.{missing[1]} is missing".removeprefix(".")
        return f"{place}: {reason[:1].lower()}{reason[1:]}".removeprefix(": ")
    except (UnicodeError, RecursionError, OverflowError) as error:
        return f"cannot be read: {error}"
    return None


def parsed(text: bytes | str, kind: Any = None) -> dict[str, Any]:
    """The JSON object that the text is, of that type if one is given. Raises `DataError` with the reason alone."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not whole JSON: {error}") from error
    if not isinstance(document, dict):
        raise DataError("holds no JSON object")
    if kind is not None:
        check(kind, document)
    return document


def check(kind: Any, document: Any) -> None:
    """Raise `DataError` with the reason alone if the document is not of that type."""
    if (wrong := problem(kind, document)) is not None:
        raise DataError(wrong)


@lru_cache(maxsize=64)
def keys(kind: Any) -> Mapping[str, Any]:
    """The keys of a TypedDict with their annotations, those of its base classes first."""
    hints = get_type_hints(kind, include_extras=True)
    optional = (NotRequired, Required)
    return {key: get_args(hint)[0] if get_origin(hint) in optional else hint for key, hint in hints.items()}


_MISSING = re.compile("Object missing required field `(.*)`", re.DOTALL)


@lru_cache(maxsize=64)
def _newest(kind: Any) -> int | None:
    """The newest version of such documents that is read; None if they have none."""
    notes = get_args(keys(kind).get("schema")) if is_typeddict(kind) else ()
    return next((note.version for note in notes if isinstance(note, Newest)), None)


class Word(StrEnum):
    """One of a fixed set of words, each with its meaning. Compares, prints and is stored as the plain text."""

    meaning: str

    def __new__(cls, text: str, meaning: str = "") -> Word:
        word = str.__new__(cls, text)
        word._value_ = text
        word.meaning = meaning
        return word


def canonical(document: Any) -> str:
    """Canonical JSON: equal documents give equal text."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with a checksum of the rest of it."""
    content = {key: value for key, value in document.items() if key != "checksum"}
    return content | {"checksum": hashlib.sha256(canonical(content).encode()).hexdigest()}


def flatten(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten a nested document to dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def finite(value: float) -> float | None:
    """The number, or None if it is not finite (JSON cannot represent it)."""
    return value if math.isfinite(value) else None


def without_nan(value: Any) -> Any:
    """The same document with null for every number that is not finite."""
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Mapping):
        return {str(key): without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return value


LONGEST_MESSAGE = 64 << 10
"""Characters of an error message or a traceback that are recorded and shown."""


def shortened(text: str, longest: int = LONGEST_MESSAGE) -> str:
    """The text; of a longer one the beginning and the end, with a note between them that says what is left out."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]} [… {len(text) - 2 * half} characters left out …] {text[-half:]}"


def shortened_trace(trace: Sequence[str]) -> list[str]:
    """The same of a traceback as a list of lines; a short one stays as it is."""
    if sum(map(len, trace)) <= LONGEST_MESSAGE:
        return list(trace)
    return shortened("".join(trace)).splitlines(keepends=True)


def one_line(error: BaseException) -> str:
    """An error as one line: the message; other errors than `HarnessError` get the type's name in front."""
    text = shortened(" ".join(str(error).split()))
    if isinstance(error, HarnessError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def refusal(error: BaseException) -> str:
    """Why torch does not read a file, in one line, without its advice to read the file unsafely."""
    text = " ".join(str(error).split())
    if "weights_only" not in text:
        return one_line(error)
    if found := re.search(r"GLOBAL (\S+)", text):
        return f"it refers to {found[1]}, which weights do not need"
    found = re.search(r"WeightsUnpickler error: (.+?)\.?(?: Check the documentation | Please use |$)", text)
    return found[1] if found else "it cannot be read without running code that it holds"


def not_computed(text: str) -> str:
    """A text for a CSV file, so that a spreadsheet shows it and does not compute it: ' in front of =, +, -, @.

    Numbers stay as they are.
    """
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def amount(size: int) -> str:
    """Format a size for readers: "512 bytes", "3.4 kB", "1.2 GB" (units of 1024)."""
    if size < 1024:
        return f"{size} bytes"
    value, units = size / 1024, ["kB", "MB", "GB", "TB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.1f} {units[0]}"


def utc_now() -> datetime:
    """The current time as Sacred stores it: UTC without a time zone."""
    return datetime.now(UTC).replace(tzinfo=None)


def seconds_since(text: str | None) -> float:
    """Seconds since a time as `utc_text` writes it; infinite for None."""
    return math.inf if text is None else (utc_now() - datetime.fromisoformat(text).replace(tzinfo=None)).total_seconds()


def utc_text(seconds: float | None = None) -> str:
    """A time in seconds since 1970 (now by default) as stored documents write it: ISO format, UTC, no time zone."""
    when = utc_now() if seconds is None else datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    return when.isoformat()


def screen_width() -> int | None:
    """The columns of the terminal; None where the output goes to a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def table(
    rows: Sequence[Sequence[object]],
    headings: Sequence[str],
    width: int | None = None,
    keep: int = 1,
    align: Sequence[str] | None = None,
    **style: Any,
) -> str:
    """A table; where it is wider than `width`, several tables, each with the first `keep` columns.

    `style` are further arguments of tabulate.
    """
    from tabulate import tabulate

    def text(columns: Sequence[int]) -> str:
        chosen = [[row[column] for column in columns] for row in rows]
        own = [align[column] for column in columns] if align and rows else None
        made: str = tabulate(chosen, [headings[column] for column in columns], colalign=own, **style)
        return made

    whole = text(range(len(headings)))
    if width is None or _width(whole) <= width:
        return whole
    widths = [_width(text([column])) for column in range(len(headings))]
    first = list(range(keep))
    parts = [[*first]]
    for column in range(keep, len(headings)):
        if len(parts[-1]) > keep and sum(widths[one] for one in [*parts[-1], column]) > width:
            parts.append([*first])
        parts[-1].append(column)
    return "\n\n".join(map(text, parts))


def _width(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)
