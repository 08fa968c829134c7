"""docs/analyses.md: its code runs from top to bottom on the store that it names, and prints what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import pytest
import torch

from harness.cli import group
from harness.components.preset import get_preset
from harness.environment import cpu_model
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.overrides import parse_only
from harness.work.plan import make_plan
from tests.jobs import attempt
from tests.toy import user_folder

PAGE = (Path(__file__).parents[1] / "docs" / "analyses.md").read_text()
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"[+-]?\d+\.\d+|NaN")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's folder with the runs of the page's command, made in this process, which has torch already."""
    words = shlex.split(_BLOCK.findall(PAGE)[0][1])[3:]
    command = group.get_command(group.make_context("harness", words, resilient_parsing=True), words[0])
    assert command is not None
    params = command.make_context("run", words[1:]).params
    with user_folder(tmp_path_factory.mktemp("analyses")) as folder:
        (study,) = find_studies(params["names"][0])
        asked = parse_only(params["only"])
        plan = make_plan([study], get_preset(params["preset"]), [], seeds=params["seeds"], only=asked)
        for work in plan.work:
            done = attempt(work.trial, "runs", device=None)
            assert done["status"] == "done", done
        assert len(DirectoryStore(Path("runs")).runs()) == 12
        yield folder


def test_the_page_prints_what_it_shows(project: Path) -> None:
    matplotlib.use("Agg")
    blocks = _BLOCK.findall(PAGE)[1:]
    assert [language for language, _ in blocks] == ["python", ""] * 6
    machine = re.search(r"made with torch (\S+) on\s`([^`]+)`;", PAGE)
    assert machine
    exact = (machine[1], machine[2]) == (torch.__version__.partition("+")[0], cpu_model())
    names: dict[str, Any] = {}
    for (_, code), (_, shown) in zip(blocks[::2], blocks[1::2], strict=True):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, names)
        assert _comparable(printed.getvalue(), exact) == _comparable(shown, exact)
    assert {"losses.pdf", "predicted.pdf"} <= {file.name for file in project.iterdir()}


def _comparable(text: str, exact: bool) -> str:
    """The text; on another kind of machine without numbers, which may differ there, and how wide they are."""
    lines = [line.rstrip() for line in text.splitlines()]
    return "\n".join(lines) if exact else " ".join(_NUMBER.sub("#", text).split())
