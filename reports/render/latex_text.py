"""Plain text as LaTeX that every engine compiles. Knows no table."""

from __future__ import annotations

import re
import unicodedata

_GREEK = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ"
_GREEK_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi "
    "omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
)
_SIGNS = "±×≤≥∝≈≠→←↑↓∞∈·"
_SIGN_NAMES = "pm times leq geq propto approx neq rightarrow leftarrow uparrow downarrow infty in cdot"
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
    "`": "\\textasciigrave{}",
    "✓": "\\checkmark{}",
    "–": "--",
    "—": "---",
    "…": "\\dots{}",
    "“": "``",
    "”": "''",
    "’": "'",
    "′": "$'$",
    "−": "$-$",
    **{sign: f"$\\{name}$" for sign, name in _MATHS.items()},
    "†": "$^\\dagger$",
}


def escape(text: str) -> str:
    """Plain text as LaTeX; adjacent formulae are merged."""
    whole = "".join(_letter(letter) for letter in " ".join(text.split()))
    # Two superscripts on one letter are an error: the second gets an empty base.
    whole = re.sub(r"\}\$\$(?=['^_])", "}{}", whole)
    return re.sub(r"(?<!\\)\$\$", "", whole)


def _letter(letter: str) -> str:
    if letter in _SPECIAL:
        return _SPECIAL[letter]
    if letter < "\x7f":
        return letter
    # Before Latin letters: every engine knows ² and ³ as such, but this way all superscripts look the same.
    kind, *codes = unicodedata.decomposition(letter).split() or [""]
    if kind in ("<super>", "<sub>"):
        inner = "".join(_letter(chr(int(code, 16))).strip("$") for code in codes)
        return f"${'^' if kind == '<super>' else '_'}{{{inner}}}$"
    # Engines stop at letters that their fonts lack: only Latin ones are safe.
    return letter if "LATIN" in unicodedata.name(letter, "") else f"[U+{ord(letter):04X}]"
