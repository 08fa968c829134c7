"""Plain text as LaTeX that every engine compiles. Knows no table."""

from __future__ import annotations

import re
import unicodedata
from itertools import groupby

_GREEK = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ"
_GREEK_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
)
_SIGNS = "±×≤≥∝≈≠→←↑↓∞∈·"
_SIGN_NAMES = "pm times leq geq propto approx neq rightarrow leftarrow uparrow downarrow infty in cdot"
_LATIN_NAMES = "ss ae AE oe OE o O l L i"
_MATHS = {
    **dict(zip(_SIGNS, _SIGN_NAMES.split(), strict=True)),
    **dict(zip(_GREEK, _GREEK_NAMES.split(), strict=True)),
}
_SPECIAL = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "\\textless{}",
    ">": "\\textgreater{}",
    "|": "\\textbar{}",
    '"': "''",
    "`": "\\`{}",
    "✓": "\\checkmark{}",
    "–": "--",
    "—": "---",
    "…": "\\dots{}",
    "“": "``",
    "”": "''",
    "’": "'",
    "−": "$-$",
    **{sign: f"$\\{name}$" for sign, name in _MATHS.items()},
    **{letter: f"\\{name}{{}}" for letter, name in zip("ßæÆœŒøØłŁı", _LATIN_NAMES.split(), strict=True)},
}
_NOTHING = "\u200b"
_SPECIAL[_NOTHING] = "{}"
_RAISED = {"†": "\\dagger", "′": "\\prime"}
_ACCENTS = dict(
    zip("\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327\u0323", "`'^~=u.\"rHvcd", strict=True)
)
"""By combining character, the command of the accent. Engines know these with every font, the letters they do not."""


def escape(text: str) -> str:
    """Plain text as LaTeX. Adjacent superscripts become one, and adjacent formulae are merged."""
    apart = re.sub("-(?=-)", f"-{_NOTHING}", " ".join(text.split()))  # two hyphens would become a dash
    runs = groupby(apart, _script)
    whole = "".join(
        _scripted(kind, "".join(letters)) if kind else "".join(map(_letter, letters)) for kind, letters in runs
    )
    # Two superscripts on one letter are an error: the second gets an empty base.
    whole = re.sub(r"\}\$\$(?=['^_])", "}{}", whole)
    return re.sub(r"(?<!\\)\$\$", "", whole)


def is_known(letter: str) -> bool:
    """Whether a letter is printed as itself, not as its number."""
    return not _letter(letter).startswith("[U+")


def _script(letter: str) -> str:
    """Where a letter is set: ^ above the line, _ below it, nothing on it."""
    if letter in _RAISED:
        return "^"
    return {"<super>": "^", "<sub>": "_"}.get(unicodedata.decomposition(letter).partition(" ")[0], "")


def _scripted(kind: str, letters: str) -> str:
    inner = "".join(_RAISED.get(letter) or _plain(letter) for letter in letters)
    return "$'$" if inner == "\\prime" else f"${kind}{{{inner}}}$"


def _plain(letter: str) -> str:
    """What is raised or lowered, as a formula."""
    _, *codes = unicodedata.decomposition(letter).split()
    return "".join(_letter(chr(int(code, 16))).strip("$") for code in codes)


def _letter(letter: str) -> str:
    if letter in _SPECIAL:
        return _SPECIAL[letter]
    if letter < "\x7f":
        return letter
    if _script(letter):
        return _scripted(_script(letter), letter)
    base, *marks = list(unicodedata.normalize("NFD", letter))
    if marks and base < "\x7f" and all(mark in _ACCENTS for mark in marks):
        for mark in marks:
            base = f"\\{_ACCENTS[mark]}{{{base}}}"
        return base
    # Engines stop at letters that their fonts lack.
    return f"[U+{ord(letter):04X}]"
