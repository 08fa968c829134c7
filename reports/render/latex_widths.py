"""How wide text is in print, before LaTeX has set it, so that tables can be laid out. Knows no table.

Widths are points of Computer Modern at 8 points, LaTeX's \\footnotesize. Other usual fonts are narrower.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

from .latex_text import escape, is_known

BOLD = 1.18
"""How much wider bold print is."""
SMALLER, LARGER = 0.94, 1.18
"""Widths of \\scriptsize and \\normalsize beside those of \\footnotesize."""

_LETTERS = {
    2.4: "!',.:;[]`il|",
    2.9: " -fj",
    3.4: "()rstI_",
    4.1: "cez?",
    4.3: '0123456789ago$*/\\^~{}"–′†',
    4.8: "bdhknpquvxySJ",
    5.4: "LZ",
    6.3: "BCEFPRTw",
    7.1: "m#%",
    7.8: "M",
    8.8: "W—→←∞",
    11.4: "…",
}
_WIDTHS = {letter: width for width, letters in _LETTERS.items() for letter in letters}
_OTHERS = 6.7
_NUMBER = 40.0
"""Of a letter that is printed as its number."""
_LONG, _PIECE = 140.0, 24.0
"""Words of running text that may be broken, and the pieces."""
_BREAKS = "/\\_-.,:;|+=~)&"
"""Characters after which a long word is broken, if there is one."""


def width(text: str) -> float:
    return sum(map(_width, text))


def _width(letter: str) -> float:
    if letter in _WIDTHS:
        return _WIDTHS[letter]
    if not is_known(letter):
        return _NUMBER
    base = unicodedata.normalize("NFD", letter)[0]
    return _WIDTHS.get(base, _OTHERS)


def wrapped(text: str, room: float) -> list[str]:
    """The lines of a text in a column. Words that are wider than the column are broken."""
    lines = [""]
    for word in text.split():
        for number, piece in enumerate(pieces(word, room)):
            longer = f"{lines[-1]}{' ' if lines[-1] and number == 0 else ''}{piece}"
            if lines[-1] and width(longer) > room:
                lines.append(piece)
            else:
                lines[-1] = longer
    return lines


def pieces(word: str, room: float) -> Iterator[str]:
    """The word in pieces that fit; most words are one."""
    while width(word) > room and len(word) > 1:
        count = max(1, next(number for number in range(1, len(word) + 1) if width(word[:number]) > room) - 1)
        sign = max(word.rfind(sign, 0, count) for sign in _BREAKS) + 1
        cut = sign if sign > count // 2 else count
        yield word[:cut]
        word = word[cut:]
    yield word


def flowing(text: str, room: float) -> str:
    """Text for a column of this width, as LaTeX: wider words may be broken."""
    return " ".join(_breakable(word, room) if width(word) > room else escape(word) for word in text.split())


def running(text: str) -> str:
    """Text of any width, as LaTeX: long words may be broken, as those of paths and ids."""
    return " ".join(_breakable(word, _PIECE) if width(word) > _LONG else escape(word) for word in text.split())


def _breakable(word: str, room: float) -> str:
    return "\\allowbreak ".join(escape(piece) for piece in pieces(word, room))
