"""Every study's LaTeX, put into a two-column article, compiles as its head comment says. Needs TeX Live."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from harness.cli import main
from harness.components.preset import get_preset
from harness.study.catalogue import all_studies
from harness.study.expansion import expand
from tests.stored_runs import store_run

DOCUMENT = r"""\documentclass[twocolumn]{article}
\usepackage{booktabs,multirow,amssymb,graphicx}
\usepackage[table]{xcolor}
\begin{document}
%s
\end{document}
"""


@pytest.mark.long
def test_all_tables_compile_in_a_two_column_article(tmp_path: Path) -> None:
    program = shutil.which("pdflatex")
    if program is None:
        pytest.fail("pdflatex is not on the PATH (Debian: apt install texlive-latex-extra)")
    studies, stored = all_studies(), set()
    for study in studies:
        for request in expand(study, get_preset("tiny", study.about), 2):
            # Not all of them: what is missing must compile, too.
            if request.row != 1 and request.trial.key not in stored:
                stored.add(request.trial.key)
                store_run(tmp_path / "runs", request, -0.5 + request.seed)
    out = tmp_path / "out"
    report = ["report", *(study.name for study in studies), "--preset", "tiny", "--store", str(tmp_path / "runs")]
    assert main([*report, "--format", "latex", "--compare", "--no-figures", "--out", str(out)]) == 0
    inputs = "\n".join(f"\\input{{{file.name}}}\\clearpage" for file in sorted(out.glob("*.tex")))
    (out / "all.tex").write_text(DOCUMENT % inputs)
    done = subprocess.run(
        [program, "-interaction=nonstopmode", "-halt-on-error", "all.tex"],
        cwd=out,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "Float too large" not in done.stdout
