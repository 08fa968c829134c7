"""Hostile expressions and values: `query`, `--where`, and `with` on the command line."""

from __future__ import annotations

import random
from pathlib import Path

from tests.long.campaign.commands import attempt
from tests.long.campaign.scene import TINY, Scene, query
from tests.long.campaign.tally import Attempt, Tally

QUERIES, VALUES = 140, 60

FIXED = (
    "__import__('os').system('touch {canary}')",
    "@__import__('os').system('touch {canary}')",
    "@pandas.io.common.os.system('touch {canary}')",
    "kendall_tau.__class__.__mro__[-1].__subclasses__()",
    "method_name.str.__class__",
    "(lambda: 1)()",
    "[one for one in (1,)]",
    "f'{{seed}}'",
    "seed == 0; import os",
    "seed = 5",
    "seed := 5",
    "`seed`.values",
    "'a'*99999999999 == method.name",
    "9**9**9 == seed",
    "seed == " + "9" * 5000,
    "seed == 1e999",
    "(" * 3000 + "seed" + ")" * 3000 + " == 0",
    "not " * 3000 + "seed",
    "seed " + "== 0 and seed " * 3000 + "== 0",
    "method..name == 1",
    "method.name.x == 1",
    "..seed == 0",
    "0if seed else 1",
    "seed == 0 & seed == 1",
    "seed in (0, 1, 'x', None)",
    "kendall_tau > 'x'",
    "method_name > 5",
    "top1 == [1, 2]",
    "nothing == 1",
    "seed ==",
    "",
    " ",
    "\n",
    "\x00",
    "\ud800 == 1",
    "seed == '\u202e'",
    "print(1)",
    "eval('1')",
    "open('/etc/passwd').read() == ''",
    "seed.sum() == 1",
    "-seed",
    "~seed",
    "seed % 0 == 0",
    "seed // 0 == 0",
    "1 / 0 == seed",
    "None",
    "True",
    "5",
    "'x'",
    "...",
    "seed if seed else 0",
    "*seed",
    "**seed",
    "seed, seed",
    "yield seed",
    "await seed",
    "import os",
    "# seed",
)
"""Code, tricks, and what people mistype; `{canary}` is a file that must not come into being."""

WORDS = (
    "seed", "kendall_tau", "method.name", "method_name", "top1", "train.epochs", "status", "nothing", "0", "1",
    "-1", "1e308", "'slow'", "''", "None", "True", "nan", "inf", "(", ")", "[", "]", ".", ",", "==", "!=", "<",
    ">=", "and", "or", "not", "in", "is", "+", "-", "*", "/", "//", "%", "**", "&", "|", "~", "@", "`", ":",
    "lambda", "if", "else", "for", "__class__", "\\",
)  # fmt: skip

KEYS = (
    "train.epochs", "train.batch_size", "network.width", "optimiser.learning_rate", "method.name", "method",
    "train", "space", "rank.bins", "rank.images", "observe.kendall_tau_every", "search", "seed", "nothing.x", "..",
    "train.", ".train", "method..name", "train.augment", "dataset", "network", "schedule.name", "clusters.name",
    "sampler.name",
)  # fmt: skip
GIVEN = (
    "9" * 4000, "-1", "0", "1e999", "nan", "inf", "None", "True", "[]", "{}", "[1, 2]", "{'a': 1}", "''", "'x'",
    "x", "../../x", "", "=", "==5", "1e308", "10**20", "99999999999999999999",
    "__import__('os').system('touch {canary}')", "\x00", "\ud800", "('x',)", "lambda: 1", "'" * 7,
    "[" * 500 + "]" * 500, "{'name': 'slow'}", "{'name': 5}", "{'name': 'slow', 'x': 1}", "b'x'",
)  # fmt: skip


def run(scene: Scene, rng: random.Random) -> list[Tally]:
    canary = scene.folder / "executed"
    asked, given = Tally("hostile queries"), Tally("hostile values after `with`")
    made = [" ".join(rng.choices(WORDS, k=rng.randrange(1, 9))) for _ in range(QUERIES - len(FIXED))]
    for text in [*(one.replace("{canary}", str(canary)) for one in FIXED), *made]:
        with asked.attempt(text[:60]) as one:
            said = attempt(one, *query(scene.store), text, codes=(0, 2), within=30)
            if said.code == 0:
                # What does not match is left out: nothing is missing by that.
                shown = Attempt("")
                scene.judge(shown, said)
                one.failures += [failure for failure in shown.failures if failure[0] != "lost"]
            else:
                _told(one, said.err)
            _nothing_ran(one, canary)
    for _ in range(VALUES):
        text = f"{rng.choice(KEYS)}={rng.choice(GIVEN)}".replace("{canary}", str(canary))
        with given.attempt(text[:60]) as one:
            said = attempt(one, "plan", "attacked", *TINY, "--store", str(scene.store), "with", text, within=30)
            if said.code:
                _told(one, said.err)
            _nothing_ran(one, canary)
    return [asked, given]


def _told(one: Attempt, said: str) -> None:
    """A refusal says why, and does not repeat a long expression; the columns that there are take half of the room."""
    why = said.strip().splitlines()
    one.require(bool(why) and not why[-1].rstrip(" .").endswith(":"), "other", f"no reason: {said[-100:]}")
    one.require(len(said) < 6000, "other", f"{len(said)} characters of explanation")


def _nothing_ran(one: Attempt, canary: Path) -> None:
    one.require(not canary.exists(), "other", "code ran")
    canary.unlink(missing_ok=True)
