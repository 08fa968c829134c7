"""All LaTeX compiles, without errors and without anything too wide or too high. Needs TeX Live.

`main.tex` shows everything; the same files also fit into a two-column article, as the head comments say.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.cli import main
from harness.components.preset import get_preset
from harness.components.registries import SPACES
from harness.study.catalogue import all_studies
from harness.study.expansion import expand
from tests.reports.test_latex import arguments, hostile
from tests.stored_runs import store_run

ARTICLE = r"""\documentclass[10pt,twocolumn]{article}
\usepackage[letterpaper,text={6.875in,8.875in},columnsep=0.3125in]{geometry}
\usepackage{booktabs,multirow,amssymb,graphicx}
\usepackage[table]{xcolor}
\begin{document}
%s
\end{document}
"""
WRONG = re.compile(r"^(!.*|Overfull.*|.*Float too large.*|.*multiply.defined.*|.*undefined.*)$", re.MULTILINE)


def compiled(folder: Path, name: str) -> None:
    """Compile a document until its contents and references are right; nothing may be wrong then."""
    program = shutil.which("pdflatex")
    if program is None:
        pytest.fail("pdflatex is not on the PATH (Debian: apt install texlive-latex-extra)")
    for _ in range(3):
        done = subprocess.run(
            [program, "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        assert done.returncode == 0, done.stdout[-3000:]
    log = (folder / f"{name}.log").read_text(errors="replace")
    assert not WRONG.findall(log)
    assert (folder / f"{name}.pdf").stat().st_size > 10_000


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The LaTeX of all studies, with figures and comparisons. Some runs are missing: that must compile, too."""
    folder = tmp_path_factory.mktemp("latex")
    studies, stored = all_studies(), set()
    for study in studies:
        for request in expand(study, get_preset("tiny", study.about), 2):
            if request.row != 1 and request.trial.key not in stored:
                stored.add(request.trial.key)
                space = SPACES.get(request.trial.config.space)()
                found = list(space.sample(random.Random(request.trial.key)))
                store_run(folder / "runs", request, -0.5 + request.seed, more={"top1": found})
    report = ["report", *(study.name for study in studies), "--preset", "tiny", "--store", str(folder / "runs")]
    assert main([*report, "--format", "latex", "--compare", "--out", str(folder / "out")]) == 0
    return folder / "out"


@pytest.mark.long
def test_the_document_of_all_studies_compiles(everything: Path) -> None:
    compiled(everything, "main")
    texts = [file.read_text() for file in everything.glob("*.tex") if file.stem != "main"]
    labels = [label for text in texts for label in arguments("label", text)]
    assert len(set(labels)) == len(labels) > 100
    assert len(arguments("ref", (everything / "main.tex").read_text())) > 70
    assert sum(text.count("\\includegraphics") for text in texts) > 20
    assert not any("resizebox" in text for text in texts)


@pytest.mark.long
def test_all_floats_compile_in_a_two_column_article(everything: Path) -> None:
    names = sorted(file.name for file in everything.glob("*.tex") if file.stem not in ("main", "article"))
    (everything / "article.tex").write_text(ARTICLE % "\n".join(f"\\input{{{name}}}\\clearpage" for name in names))
    compiled(everything, "article")


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:Glyph", "ignore:constrained_layout")
def test_names_that_mean_something_to_latex_compile(tmp_path: Path) -> None:
    out = hostile(tmp_path)
    compiled(out, "main-document")
    assert "$^{\\approx}$" in "".join(file.read_text() for file in out.glob("*.tex"))
