"""Output on terminals and into files that lack some letters: what is printed stays readable, and nothing fails.

Cells of tables differ by ✓ and – alone, so a question mark for every letter would not do.
"""

from __future__ import annotations

import codecs
import io
from typing import TextIO

HANDLER = "harness.plain"
"""The name under which `str.encode` knows it."""

RAISING = ("strict", "surrogateescape")
"""How streams treat letters that they lack, by default; the second in the locale C. Both raise an error."""

_PAIRS = """
✓ x  ✗ -  – -  — -  − -  × x  · *  … ...  ± +-  ≈ ~  ≥ >=  ≤ <=  ≠ !=  → ->  ← <-  ↑ ^  ↓ v  ∞ inf  † +
“ "  ” "  ‘ '  ’ '  ′ '  ² ^2  ³ ^3  ━ -  ─ -  │ |
τ tau  α alpha  β beta  γ gamma  η eta  ρ rho  μ mu  ω omega  σ sigma  λ lambda  Δ delta  Σ sum
"""
PLAIN = dict(zip(_PAIRS.split()[::2], _PAIRS.split()[1::2], strict=True))
"""ASCII for letters and signs of our output."""


def replace_what_cannot_be_written(*streams: TextIO | None) -> None:
    """Let these streams write a plain word or sign for a letter that they lack, or "?", instead of raising."""
    codecs.register_error(HANDLER, _plain)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper) and stream.errors in RAISING:
            stream.reconfigure(errors=HANDLER)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(PLAIN.get(letter, "?") for letter in lacking), error.end
