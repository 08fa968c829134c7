"""Hostile names: of studies, rows, runs, stores and components; and terminals that do not know our letters."""

from __future__ import annotations

import csv
import io
import random
import shutil
from pathlib import Path

from tests.long.campaign.commands import attempt, call
from tests.long.campaign.scene import TINY, Scene, query
from tests.long.campaign.tally import Attempt, Tally
from tests.many_trials import finish, start

STUDY = """
from harness.study import Column, Figure, Row, Study

toy = {{"space": "toy", "dataset": "toy", "benchmark": "toy", "rank.images": 50, "rank.candidates": 12,
       "train.batch_size": 20, "network.width": 2, "method.name": "slow", "train.epochs": 2, "rank.bins": 5}}
rows = [Row({{{label!r}: {value!r}}}, toy | {{"schedule.name": "cosine"}})]
study = Study({name!r}, {title!r}, rows, [Column({column!r}, "kendall_tau")])
"""

NAMES = (
    "../../x", "/tmp/x", "..", ".", "", "a/b", "a\\b", "a\nb", "a\x00b", "x" * 300, "-rf", "--help", "a b", "ü",
    "\u202etxt", "$(touch executed)", "`touch executed`", "; touch executed", "*", "?", "[a]", "~", "%s", "{0}",
    "con", "study.py",
)  # fmt: skip
TEXTS = (
    "<script>alert(1)</script>", "[l](javascript:alert(1))", "\\input{/etc/passwd}", "\\write18{touch executed}",
    "=1+1", "+1", "-1+cmd|' /C calc'!A0", "@SUM(A1)", "a|b", "a\nb", "$x$", "%", "&amp;", "\"'", "\u202e", "{{7*7}}",
    "{% raw %}", "_^~#",
)  # fmt: skip


def studies(scene: Scene, rng: random.Random) -> list[Tally]:
    names, texts = Tally("hostile names of studies"), Tally("hostile labels and titles")
    file = scene.folder / "studies" / "hostile.py"
    out = scene.folder / "deep" / "er" / "out"
    for name in NAMES:
        file.write_text(STUDY.format(name=name, title="T", label="L", value="v", column="τ"))
        with names.attempt(repr(name)) as one:
            before = _outside(scene.folder, out)
            for form in ("markdown", "latex", "csv", "html"):
                asked = ("report", str(file), *TINY, "--format", form, "--store", str(scene.store), "--out", str(out))
                attempt(one, *asked)
            attempt(one, "plan", str(file), *TINY, "--store", str(scene.store))
            one.require(_outside(scene.folder, out) == before, "other", "something is written outside of --out")
            shutil.rmtree(out.parent.parent, ignore_errors=True)
    for text in TEXTS:
        file.write_text(STUDY.format(name="hostile", title=text, label=text, value=text, column=text))
        with texts.attempt(repr(text)) as one:
            for form in ("markdown", "latex", "csv", "html"):
                said = attempt(one, "report", str(file), *TINY, "--format", form, "--store", str(scene.store))
                _harmless(one, form, text, said.out)
    file.unlink()
    return [names, texts]


def _harmless(one: Attempt, form: str, text: str, said: str) -> None:
    if form == "html":
        one.require("<script>alert" not in said and 'href="javascript:' not in said, "other", "runs in a browser")
    if form == "markdown":
        one.require("](javascript:" not in said and "<script>" not in said, "other", "a link in Markdown")
    if form == "latex":
        one.require("\\input{/" not in said and "\\write18" not in said, "other", "a command in LaTeX")
    if form == "csv":
        cells = [cell for row in csv.reader(io.StringIO(said)) for cell in row]
        formulas = [cell for cell in cells if cell and cell[0] in "=+@" and not _is_number(cell)]
        one.require(not formulas, "other", f"a formula in CSV: {formulas[:1]}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _outside(folder: Path, out: Path) -> set[str]:
    """All files that could have been written but belong to nobody."""
    near = [*folder.glob("*"), *folder.parent.glob("*"), *(folder / "deep").rglob("*"), *Path("/tmp").glob("x*")]
    return {str(path) for path in near if path != out and out not in path.parents and path not in out.parents}


def runs_and_stores(scene: Scene) -> Tally:
    """Ids of runs that are none, and folders with odd names."""
    tally = Tally("hostile ids and places")
    for name in NAMES:
        with tally.attempt(f"show {name!r}") as one:
            attempt(one, "show", "--store", str(scene.store), "--", name)
        if "\x00" in name or len(name) > 200 or name in ("", ".", "..", "/tmp/x", "../../x"):
            continue
        with tally.attempt(f"store {name!r}") as one:
            place = scene.folder / "odd" / name
            shutil.copytree(scene.store, place, symlinks=True)
            scene.judge(one, attempt(one, *query(place)))
            attempt(one, "store", "check", "--store", str(place), codes=(0, 1))
            shutil.rmtree(scene.folder / "odd")
    return tally


def terminals(scene: Scene) -> Tally:
    """Output that is not UTF-8, and output that is closed."""
    tally = Tally("terminals without our letters")
    asked = [("report", "attacked", *TINY, "--store", str(scene.store)), query(scene.store)]
    begun = [
        (encoding, start(scene.folder, *command, PYTHONIOENCODING=encoding))
        for encoding in ("latin-1", "ascii", "cp1252", "utf-16")
        for command in asked
    ]
    for encoding, process in begun:
        with tally.attempt(encoding) as one:
            process.wait(timeout=600)
            said = process.said.read_bytes().decode("latin-1").replace("\x00", "")  # type: ignore[attr-defined]
            one.require("Traceback" not in said, "tracebacks", said[-200:])
            one.require(process.returncode == 0, "other", f"exit code {process.returncode}: {said[-200:]}")
    with tally.attempt("run in latin-1") as one:
        store = scene.folder / "latin"
        more = ("--only", "seed=0", "--store", str(store), "--no-references")
        process = start(scene.folder, "run", "attacked", *TINY, *more, PYTHONIOENCODING="latin-1")
        said = finish(process)
        one.require("Traceback" not in said, "tracebacks", said[-200:])
        one.require(process.returncode == 0 and "3 of 3" in said, "lost", said[-200:])
        assert call("store", "check", "--store", str(store)).code == 0
        shutil.rmtree(store)
    return tally


def run(scene: Scene, rng: random.Random) -> list[Tally]:
    return [*studies(scene, rng), runs_and_stores(scene), terminals(scene)]
