"""Texts and the hashes of their code, as they are stored. `python tests/code_samples.py` checks them without pytest:
run it under every version of Python that the harness supports when there is a new one, or when
`harness/components/code.py` has changed.
"""

from __future__ import annotations

import sys
from pathlib import Path

METHOD = '''"""A method of one path."""

from dataclasses import dataclass

from harness.components.method import Method
from harness.components.registries import METHODS

from ._draws import draw


@METHODS.register("mine")
@dataclass(frozen=True)
class Mine(Method):
    """As SPOS."""

    count: int = 1
    """Paths per step."""

    def paths(self, training):
        # One after the other.
        return [draw(training, number) for number in range(self.count)]
'''

FORMATTED = """
a, b, w = 0x10, 1_000.5e-3, 5
name = "text" 'and more' + u'\\u00e9\\U0001fae8\\x00\\ud800' + '''lines
'''
f"{a}"; f"{a!r:>{w}}" "joined" f"{b:.2f}"; f"{a=}"; f"{{}}{a}{{"; f"{a:}"; f""; f"{a:%H:%M}{b!s:^{w}.{w}}"
rf"{a}\\n"; f"{'a' 'b'}"; f"{a,}"; f"{lambda_ if (lambda_ := 3) else 2}"
"""

STATEMENTS = """
import os, sys as system
from . import x as y
from ..z import (p, q,)
async def f(a, /, b: int = 1, *c, d=None, **e) -> "int":
    async with a as b, c: pass
    async for x in y: await z
    else: return
    global g
def g():
    try: raise ValueError from None
    except (A, B) as error: assert x, "y"
    finally: yield from (yield 1)
"""

MATCHING = """
match x:
    case {"a": 1, **rest} if rest: pass
    case [1, *others] | Point(x=0, y=None): pass
    case "s" | b"b" | -1 | 1j | None | True as y: pass
    case _: ...
try: pass
except* (A, B): pass
x = [*a, *(b for b in c if d if e)]; y = {**a, 'b': {1, 2}}; z[1:2, ::3, ...] = yield_ = lambda *, k=1: not -k
del x.y, z[0]; x @= y; x: int = 3; x: int; print(1 if 2 < 3 <= 4 is not None else 5, *a, sep="", **b)
while True: break
"""

LONG = "total = " + " + ".join(map(str, range(900)))

HUGE = f"number = {hex(16**6000)}"

SAMPLES = {
    "": "b5999633d806a442",
    METHOD: "82c9c301784bb4c5",
    FORMATTED: "7c1f00260dc2ba72",
    STATEMENTS: "0a1941995638d5a8",
    MATCHING: "1b92fe049683d00e",
    LONG: "175a24c4ec72ff64",
    HUGE: "3f82c727cc0554b3",
}
"""The hash by the text."""

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from harness.components.code import code_of

    wrong = [text for text, digest in SAMPLES.items() if getattr(code_of(text.encode()), "digest", None) != digest]
    print(f"Python {sys.version.split()[0]}: {len(SAMPLES) - len(wrong)} of {len(SAMPLES)} hashes are the stored ones")
    sys.exit(bool(wrong))
