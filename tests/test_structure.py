"""The floor plan, kept by tests: levels without cycles, no torch in what plans and reads, names in their own rooms."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from harness.components.preset import get_preset
from harness.environment import ENGINE, PROJECT
from harness.stores.directory.store import DirectoryStore
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.references import reference_names
from harness.work.references import missing_references
from tests.jobs import make_references
from tests.stored_runs import store_run

PACKAGES = {"components", "study", "training", "data", "truth", "work", "stores", "testing", "cli", "view"}
FOUNDATIONS = {"errors", "seeds", "metrics", "documents", "files", "environment", "interruption", "owner", "statistics"}
FOUNDATIONS |= {"schema", "settings"}
COMPUTES = (
    "harness.training",
    "harness.data.devices",
    "harness.data.loader",
    "harness.data.loading",
    "harness.data.randomness",
    "harness.data.streaming",
    "harness.truth.build",
    "harness.truth.verify",
    "harness.testing",
    "harness.work.doctor_gpu",
    "harness.work.compute",
    "harness.work.calibration_job",
    "harness.work.task",
    "harness.work.ranking",
    # Observers of Sacred's, at work in the training process.
    "harness.stores.sacred",
    "harness.stores.directory.observer",
    "harness.stores.mongo.mirror",
)
"""What computes, and so may import torch and Sacred. All else plans, reads or keeps."""


def modules() -> dict[str, Path]:
    """Every module of the engine, by its dotted name."""
    files = sorted(ENGINE.rglob("*.py"))
    return {".".join(file.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def imports(file: Path) -> Iterator[str]:
    """The modules that a file imports, inside functions too; what only types need does not count."""
    pending: list[ast.AST] = [ast.parse(file.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        pending.extend(ast.iter_child_nodes(node))


def room(module: str) -> str:
    """The package of a module, or the module itself where it is directly in `harness`."""
    return (module.split(".") + [""])[1]


def test_packages_form_levels_without_cycles() -> None:
    graph: dict[str, set[str]] = {}
    for name, file in modules().items():
        used = {room(one) for one in imports(file) if one.startswith("harness.")}
        graph.setdefault(room(name), set()).update(used - {room(name)})
    try:
        levels = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"packages import each other: {' -> '.join(error.args[1])}")
    assert levels.index("components") < levels.index("study") < levels.index("training") < levels.index("work")
    assert "stores" not in graph["study"]
    for foundation in FOUNDATIONS:
        assert graph[foundation] <= FOUNDATIONS, f"{foundation} is a foundation and imports {graph[foundation]}"


def test_planning_and_reading_import_no_torch() -> None:
    light = [name for name in modules() if not name.startswith(COMPUTES) and not name.endswith("__main__")]
    script = (
        "import importlib, json, sys\n"
        f"for name in {light!r}: importlib.import_module(name)\n"
        "from harness.components.registries import REGISTRIES\n"
        "for registry in REGISTRIES.values(): registry.names()\n"
        "from harness.study.catalogue import all_studies\n"
        "all_studies()\n"
        "print(json.dumps(sorted({'torch', 'pandas', 'sacred'} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_a_report_with_its_references_imports_no_torch(tmp_path: Path) -> None:
    """References are made in this process, as `run` makes them, and shown by another."""
    study, store = find_studies("ablation_calr_ms")[0], DirectoryStore(tmp_path)
    store_run(tmp_path, expand(study, get_preset("tiny"), 1)[0], 0.5)
    made = make_references(missing_references([study], "tiny", store, 1), tmp_path)
    assert {answer["status"] for answer in made} == {"done"}
    script = (
        "import sys\n"
        "from harness.components.discovery import component\n"
        "from harness.components.preset import get_preset\n"
        "from harness.stores.directory.store import DirectoryStore\n"
        "from harness.study.catalogue import find_studies\n"
        "component('reports.references')\n"
        "report = component('reports.report')\n"
        "asked = report.Asked(get_preset('tiny'), 1, references=True)\n"
        f"section = report.section(find_studies('ablation_calr_ms')[0], DirectoryStore({str(tmp_path)!r}), asked)\n"
        "print([row.name for row in section.table.blocks[-1]], sorted({'torch', 'sacred'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True)
    assert done.stdout == f"{reference_names()} []\n", done.stderr


def test_the_top_level_is_the_architecture() -> None:
    found = {path.name for path in ENGINE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert found == PACKAGES
    assert len(list(ENGINE.glob("*.py"))) <= 15


def test_no_module_is_longer_than_it_can_be_read() -> None:
    content = [file for folder in ("harness", "methods", "spaces", "studies", "reports") for file in _python(folder)]
    lines = {file.relative_to(PROJECT): len(file.read_text().splitlines()) for file in content}
    # The schema is a list: one line per key of every stored document, in one place.
    assert lines.pop(Path("harness/schema.py")) <= 700
    assert not {file: count for file, count in lines.items() if count > 600}


def test_no_function_of_work_and_training_is_longer_than_a_screen() -> None:
    long = {
        f"{file.relative_to(PROJECT)}: {node.name}": lines
        for file in (*_python("harness/work"), *_python("harness/training"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and (lines := (node.end_lineno or 0) - node.lineno + 1) > 80
    }
    assert not long


def test_the_engine_names_no_method_space_or_data_set() -> None:
    """Data sets that ship with the engine are in `harness/data`; all else is found through registries."""
    names = re.compile(r"\b(nasbench201|nas-bench-201|cifar10|cifar100|fairnas|spos|fsnas)\b", re.IGNORECASE)
    found = [
        f"{file.relative_to(PROJECT)}:{number}: {line.strip()}"
        for file in _python("harness")
        if not file.is_relative_to(ENGINE / "data")
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if names.search(line)
    ]
    assert not found, "\n".join(found)


def _python(folder: str) -> list[Path]:
    return sorted((PROJECT / folder).rglob("*.py"))
