"""README and docs/: their examples run, their commands parse, their links, paths and lists are those of the code.

Each check is a function that gives the problems of a text; the last test shows that every one of them finds some.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pytest

from harness import __version__
from harness.cli import group, main
from harness.cli._explained_preset import explained_presets
from harness.cli.list import kinds
from harness.components.preset import get_preset, presets_of
from harness.components.registries import SEARCHES
from harness.errors import UserError
from harness.query import translate
from harness.results import frame
from harness.schema import PANEL, Cost, Panel, RankedFirst, Result, SelectedSet, described
from harness.study import expand
from harness.study.catalogue import all_studies, find_studies
from harness.study.columns import column_meanings, document_columns
from harness.study.configuration import COMPONENTS, Retraining, RunConfig, default_name
from harness.study.explanation import explained
from harness.study.overrides import matching, parse_only, parse_updates
from harness.study.retraining import Teacher
from tests.toy import user_folder

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md"))]
EXAMPLES = (README, DOCS / "components.md", *sorted(DOCS.glob("own_*.md")), DOCS / "tutorial.md", DOCS / "figures.md")
"""The documents whose Python examples name the file that they are, in their first line."""

LONGEST_README, LONGEST_SENTENCE = 180, 30

HABITS = {
    r"anew|once more": "again",
    r"at hand|(?:is|are) not here": "available, installed",
    r"beside": "next to, besides, compared with",
    r"told|tells?|heard": "prints, shows, reports, distinguishes",
    r"asked|asks for|wants": "requests, requires, needs",
    r"stands?(?!-alone)": "is, appears, means",
    r"(?<!here )(?:is|are|was|were) no(?! longer)": "is not a",
    r"goes on|go on|for ever": "continues",
    r"whoever|wherever it": "if someone, everywhere",
    r"pretended|cured|mended|in the midst|be had": "mock, fixed, repaired, during, available",
}
"""Words of translated prose, and plain ones in their place."""

every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=[one.name for one in DOCUMENTS])

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# (\S+\.py)\n")


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of a language; "" for commands and other plain text."""
    return [code for found, code in _BLOCK.findall(text) if found == language]


def prose(text: str) -> str:
    """The text without its fenced blocks."""
    return _BLOCK.sub("", text)


def example_files() -> dict[str, str]:
    """The examples that are files of a user's folder, by path."""
    files: dict[str, str] = {}
    for code in [code for document in EXAMPLES for code in blocks(document.read_text(), "python")]:
        if match := _FILE.match(code):
            assert files.setdefault(match[1], code) == code, f"two documents show different versions of {match[1]}"
    return files


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A user's folder with what `harness init` writes and all examples in it, as the current directory."""
    made = tmp_path_factory.mktemp("documents")
    assert main(["init", str(made)]) == 0
    with user_folder(made, example_files()) as folder:
        yield folder


# --- examples ---


def test_a_method_has_ten_lines_and_a_study_fifteen() -> None:
    method, study = (code.splitlines()[1:] for code in blocks(README.read_text(), "python"))
    assert sum(map(bool, method)) <= 10 and sum(map(bool, study)) <= 15


def test_a_format_has_twenty_five_lines() -> None:
    code = example_files()["methods/wiki.py"]
    assert sum(map(bool, code.splitlines()[1:])) <= 25


def test_the_examples_run_and_stand_in_tables_and_data_frames(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", "methods"]) == 0
    assert "Two uniform paths per step" in capsys.readouterr().out
    (build,) = [words for words in commands((DOCS / "own_space.md").read_text()) if "build" in words]
    assert main(build) == 0
    asked = ["--preset", "tiny", "--seeds", "1"]
    # Together, since a process that computes takes seconds to start.
    assert main(["run", "mine", "chain_methods", "tower_search", *asked]) == 0
    capsys.readouterr()
    for study, rows in {"mine": ("spos", "two-paths"), "chain_methods": ("SPOS", "SPOS, warm-up", "Two paths")}.items():
        assert main(["report", study, *asked]) == 0
        table = capsys.readouterr().out
        for row in rows:
            assert re.search(rf"^\| {row} +\| +\**-?\d\.\d{{3}}", table, re.MULTILINE), table
    assert main(["report", "chain_methods", *asked, "--compare", "--format", "wiki"]) == 0
    assert re.search(r'^{\| class="wikitable"\n\|\+ .*\n! .*\n\|-\n\| SPOS \|\| -?\d\.\d{3}', capsys.readouterr().out)
    assert main(["report", "chain_methods", *asked, "--compare", "--format", "wiki", "--out", "wiki"]) == 0
    assert {"chain_methods.wiki", "chain_methods-compared.wiki"} <= {file.name for file in Path("wiki").iterdir()}
    assert main(["report", "tower_search", *asked]) == 0
    table = capsys.readouterr().out
    assert re.search(r"^\| second +\| +\**\d+\.\d\d", table, re.MULTILINE), table
    (code,) = blocks((DOCS / "results.md").read_text(), "python")
    found: dict[str, Any] = {}
    exec(code, found)
    # SPOS is one trial in `mine` and in the paper's table, which has that row already.
    assert len(found["df"]) == len(found["means"]) == 1
    assert {"run_id", "label_method", "seed", "step", "value"} < set(found["losses"].columns)
    assert len(found["guesses"]) > 1 and found["guesses"].true.notna().all() and found["guesses"].selected.any()


def test_the_example_of_a_search_finds_something(project: Path) -> None:
    from harness.training.trial import run_trial

    (study,) = find_studies("tower_search")
    (config, *_) = (request.trial.start for request in expand(study, get_preset("tiny", "tower"), 1))
    assert config is not None
    limits = {"parameters": [200, 300]}
    changed = {**config.config.json(), "search": {"name": "climbing", "steps": 3, "limits": limits}}
    result = run_trial(RunConfig.from_json(changed)).result
    assert len(result["found"]) == 1 and result["scored"]["32"] >= 2 and result["scored"]["0"] == 1


def test_a_trial_runs_without_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = [one for one in blocks((DOCS / "components.md").read_text(), "python") if not _FILE.match(one)]
    quick, count = re.subn(r'"epochs": 20\b', '"epochs": 1', code)
    assert count == 1
    exec(quick, {})
    assert capsys.readouterr().out.count("'kendall_tau'") == 2


@every_document
def test_imports_in_examples_exist(document: Path) -> None:
    assert not import_problems(document.read_text())


def import_problems(text: str) -> list[str]:
    """What Python examples import from the engine and is not there."""
    nodes = [node for code in blocks(text, "python") for node in ast.walk(ast.parse(code))]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("harness")]
    named = [(node.module or "", alias.name) for node in imports for alias in node.names]
    return [f"{module}.{name}" for module, name in named if not _is_there(module, name)]


def _is_there(module: str, name: str) -> bool:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return False
    return hasattr(importlib.import_module(module), name) or (ROOT / module.replace(".", "/") / f"{name}.py").is_file()


# --- commands ---


@every_document
def test_commands_have_the_options_studies_presets_and_keys_that_they_name(document: Path, project: Path) -> None:
    assert not command_problems(document.read_text())


def commands(text: str) -> list[list[str]]:
    """The words after `harness` of every command line in fenced blocks."""
    return [words for program, words in _lines(text) if program == "harness"]


def _lines(text: str) -> Iterator[tuple[str, list[str]]]:
    for line in "\n".join(blocks(text, "")).splitlines():
        inner = re.search(r"\$\(((?:python -m )?harness .*?)\)", line)
        shown = inner[1] if inner else line
        if re.match(r"(python -m )?harness(\s|$)|make\b", shown):
            words = shlex.split(shown.removeprefix("python -m "), comments=True)
            yield words[0], words[1:]


def command_problems(text: str) -> list[str]:
    """What is wrong with the command lines of a document; none of them is run."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    problems = []
    for program, words in _lines(text):
        if program == "make":
            problems += [f"make {word}" for word in words if "=" not in word and word not in targets]
            continue
        try:
            _check_command(words)
        except (click.ClickException, UserError) as error:
            message = error.format_message() if isinstance(error, click.ClickException) else str(error)
            problems.append(f"harness {shlex.join(words)}: {message}")
    return problems


def _check_command(words: Sequence[str]) -> None:
    command: click.Command = group
    context, rest = click.Context(group, info_name="harness"), list(words)
    while isinstance(command, click.Group) and not rest[0].startswith("-"):
        found = command.get_command(context, name := rest.pop(0))
        if found is None:
            raise click.UsageError(f"no command {name!r}")
        command = found
    try:
        given = command.make_context(command.name, rest, parent=context).params
    except click.exceptions.Exit:  # --help
        return
    _check_names(given)


def _check_names(given: dict[str, Any]) -> None:
    """Raises `UserError` for a study, preset, configuration key or column that does not exist."""
    named = given.get("names") or given.get("studies") or given.get("study") or ()
    known = {study.name: study for study in all_studies()}
    names = [named] if isinstance(named, str) else named
    studies = [one for name in names for one in find_studies(str(ROOT / name) if name.endswith(".py") else name)]
    if (preset := given.get("preset")) and not studies and not given.get("everything"):
        get_preset(preset, given.get("space"))
    word = " ".join(given.get("word") or ())
    if word and word not in kinds() and not explained(word) and not explained_presets(word, given.get("space")):
        raise UserError(f"nothing is named {word!r}")
    if (condition := given.get("where") or given.get("expression")) is not None:
        translate(condition, frame([]).columns)
    for study in studies or (known.values() if given.get("everything") else ()):
        if preset and (studies or preset in presets_of(study.about)):
            updates = [one for one in given.get("updates", ()) if one != "train.weights=RUN"]  # of the reader's store
            requests = expand(study, get_preset(preset, study.about), 1, parse_updates(updates))
            matching([request.trial.config.json() for request in requests], parse_only(given.get("only", ())))


# --- links, paths, lengths ---


@every_document
def test_links_lead_somewhere(document: Path) -> None:
    assert not link_problems(document.read_text(), document)


def link_problems(text: str, document: Path = README) -> list[str]:
    """The relative links of a document that lead to no file, or to no heading of it."""
    problems = []
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(text)):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = (document.parent / path).resolve() if path else document
        there = text if file == document else file.read_text() if anchor and file.is_file() else ""
        if not file.exists() or (anchor and anchor not in _anchors(there)):
            problems.append(target)
    return problems


def _anchors(text: str) -> set[str]:
    """The names of a document's headings: small letters, digits and hyphens, without punctuation."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_document
def test_paths_exist(document: Path) -> None:
    assert not path_problems(document.read_text())


def path_problems(text: str) -> list[str]:
    """Files of the project that a document names and that are not there; those of its examples are."""
    named = re.findall(r"`((?:harness|methods|spaces|studies|reports|tests|docs)/[^`\s{}*]*)`", prose(text))
    return [path for path in named if not (ROOT / path).exists() and path not in example_files()]


def test_the_architecture_names_what_exists() -> None:
    text = (DOCS / "architecture.md").read_text()
    assert not symbol_problems(text)
    assert len(symbols(text)) > 50
    for words in ("CaLR formula", "327", "Algorithm 2", "in MongoDB", "text under a table", "preset `official`"):
        assert any(words in line and symbols(line) for line in text.splitlines()), f"nothing says where {words} is"


def symbols(text: str) -> list[tuple[str, str]]:
    """Paths with the symbols behind them: `path` (`symbol`, `symbol`)."""
    pairs = re.findall(r"`([\w./-]+)`\s\(((?:`[^`]+`(?:,\s)?)+)\)", text)
    return [(path, name) for path, names in pairs for name in re.findall(r"`([^`]+)`", names)]


def symbol_problems(text: str) -> list[str]:
    """The pairs whose file is not there, or does not define the symbol."""
    return [f"{path} ({name})" for path, name in symbols(text) if not _defines(ROOT / path, name)]


def _defines(file: Path, name: str) -> bool:
    if not file.is_file():
        return False
    if file.suffix != ".py":
        return re.search(rf"\b{re.escape(name)}\b", file.read_text()) is not None
    body: list[ast.stmt] = ast.parse(file.read_text()).body
    for part in name.split("."):
        found = [node for node in body if part in _bound(node)]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def _bound(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def test_the_readme_is_short() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= LONGEST_README
    assert not sentence_problems(text)


def sentence_problems(text: str) -> list[str]:
    """The sentences outside of blocks, tables and headings that are too long; code counts as one word."""
    lines = [line for line in prose(text).splitlines() if not line.startswith(("|", "#"))]
    plain = re.sub(r"`[^`]*`", "code", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", "\n".join(lines)))
    paragraphs = re.split(r"\n\s*\n|^- ", plain, flags=re.MULTILINE)
    sentences = [one for paragraph in paragraphs for one in re.split(r"(?<=[.!?])[*)]*\s+", paragraph.strip())]
    return [one for one in sentences if len(re.findall(r"\w[^\s]*", one)) > LONGEST_SENTENCE]


@every_document
def test_documents_have_no_bad_habits(document: Path) -> None:
    assert not habit_problems(document.read_text())


def test_help_has_no_bad_habits() -> None:
    assert not habit_problems("\n".join(_helps(group, click.Context(group, info_name="harness"))))


def _helps(command: click.Command, context: click.Context) -> Iterator[str]:
    """The help of a command and of those below it, on lines of any length."""
    yield command.get_help(
        click.Context(command, context, context.info_name, terminal_width=999, max_content_width=999)
    )
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _helps(inner, click.Context(inner, context, name))


def habit_problems(text: str) -> list[str]:
    """The sentences outside of blocks and code with words of `HABITS`."""
    plain = re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", prose(text))
    found = re.compile("|".join(rf"\b(?:{habit})\b" for habit in HABITS), re.IGNORECASE).finditer(plain)
    return [plain[max(0, match.start() - 40) : match.end() + 20] for match in found]


# --- lists that must be whole ---


def test_the_configuration_is_listed_with_its_defaults() -> None:
    assert not configuration_problems((DOCS / "configuration.md").read_text())


def configuration_problems(text: str) -> list[str]:
    """The keys and options that are missing, or have another default; and those that do not exist."""
    expected = set(_keys())  # two components may have different defaults of one option
    listed: set[tuple[str, str]] = set()
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| `") else []
        for key, default in zip(cells, cells[1:], strict=False):
            if re.fullmatch(r"`[a-z_]+(\.[a-z_0-9]+)*`", key) and re.fullmatch(r"`[^`]*`", default):
                listed.add((key.strip("`"), default.strip("`")))
    sections, keys = {key.partition(".")[0] for key, _ in expected}, {key for key, _ in expected}
    wrong = [f"{key} is {value}, not {dict(listed).get(key)}" for key, value in sorted(expected - listed)]
    found = [(key, value) for key, value in sorted(listed) if key.partition(".")[0] in sections and "." in key]
    wrong += [f"{key} is not {value}" for key, value in found if key in keys and (key, value) not in expected]
    return wrong + [key for key, _ in found if key not in keys]


def test_every_column_of_result_and_cost_is_listed_with_its_meaning() -> None:
    text = (DOCS / "results.md").read_text()
    listed = [
        tuple(cell.strip(" `") for cell in line.strip("|").split("|")) for line in text.splitlines() if "` |" in line
    ]
    dtypes = {float: "float64", int: "int64", str: "str", bool: "bool", object: "object"}
    expected = [
        (name, dtypes[document_columns(kind).get(name, float)], meaning)
        for kind in (Result, Cost)
        for name, meaning in column_meanings(kind).items()
        if not name.startswith(PANEL)
    ]
    assert [line for line in listed if line[0] not in ("study", "store", "preset", "where", "all", "panel")] == expected


def test_every_measure_of_the_panel_is_listed_with_its_meaning() -> None:
    text = (DOCS / "measures.md").read_text()
    for kind in (Panel, SelectedSet, RankedFirst):
        for key, meaning in described(kind).items():
            assert f"| `{key}` | {meaning} |" in text


def _keys() -> Iterator[tuple[str, str]]:
    """Every configuration key and option of our components, with its default as a document writes it."""
    for section in dataclasses.fields(RunConfig):
        value = Retraining() if section.name == "retrain" else getattr(RunConfig(), section.name)
        if section.name == "search":
            for name in [name for name, entry in SEARCHES.items() if entry.file.is_relative_to(ROOT)]:
                for option in dataclasses.fields(SEARCHES.get(name)):
                    yield f"search.{option.name}", "{}" if option.name == "limits" else _shown(option.default)
        elif section.name in COMPONENTS:
            yield f"{section.name}.name", default_name(f"{section.name}.name")
            registry = COMPONENTS[section.name]
            for name in [name for name, entry in registry.items() if entry.file.is_relative_to(ROOT)]:
                for option in dataclasses.fields(registry.get(name)):
                    yield f"{section.name}.{option.name}", _shown(option.default)
        elif dataclasses.is_dataclass(value):
            for field in dataclasses.fields(value):
                inner = getattr(value, field.name)
                named = dataclasses.is_dataclass(inner)
                yield f"{section.name}.{field.name}" + ".name" * named, inner.name if named else _shown(inner)
            if section.name == "retrain":
                for field in dataclasses.fields(Teacher):
                    if field.default is not dataclasses.MISSING:
                        yield f"retrain.teacher.{field.name}", _shown(field.default)
        else:
            yield section.name, _shown(value)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def test_changelog_and_citation_are_of_this_version() -> None:
    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_every_study_preset_command_and_document_is_named() -> None:
    studies, start = (path.read_text() for path in (DOCS / "studies.md", DOCS / "start.md"))
    assert all(f"| `{file.stem}` |" in studies for file in (ROOT / "studies").glob("[!_]*.py"))
    assert all(f"| `{name}` |" in studies for name in presets_of())
    assert all(f"harness {name}" in start for name in group.list_commands(click.Context(group)))
    listed = re.findall(r"^[\w/]+$", (DOCS / "index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted({page.stem for page in DOCS.glob("*.md")} - {"index"} | {"commands/index"})


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (import_problems, "```python\nfrom harness.study import Colum\n```\n"),
        (import_problems, "```python\nfrom harness.method import Method\n```\n"),
        (command_problems, "```\npython -m harness rum mine\n```\n"),
        (command_problems, "```\nharness store chek\n```\n"),
        (command_problems, "```\nharness run mine --sedes 1   # a comment\n```\n"),
        (command_problems, "```\nharness run mine --seeds many\n```\n"),
        (command_problems, "```\nharness run ablation --preset tiny\n```\n"),
        (command_problems, "```\nharness explain offical\n```\n"),
        (command_problems, "```\nharness run ablation_calr_ms --preset huge\n```\n"),
        (command_problems, "```\nharness plan ablation_calr_ms with train.epoch=1\n```\n"),
        (command_problems, "```\nharness run ablation_calr_ms --only method.nam=spos\n```\n"),
        (command_problems, '```\nharness query "tau > 0.5"\n```\n'),
        (command_problems, '```\neval "$(python -m harness mongo begin)"\n```\n'),
        (command_problems, "```\nmake demonstration\n```\n"),
        (link_problems, "see [this](docs/nothing.md)"),
        (link_problems, "see [this](docs/stores.md#clams)"),
        (link_problems, "# One\n\nsee [two](#two)"),
        (path_problems, "in `harness/method.py`"),
        (symbol_problems, "`harness/nothing.py` (`run`)"),
        (symbol_problems, "`harness/metrics.py` (`kendall_tau`, `spearman`)"),
        (symbol_problems, "`methods/schedules.py` (`CaLR.decay`)"),
        (symbol_problems, "`reports/paper/statements.json` (`verdict_of_nobody`)"),
        (sentence_problems, "Short. " + "word " * 31 + "end. Short."),
        *((habit_problems, f"It {words} run.") for words in ("runs anew, to", "stands for a", "is no", "Tells of a")),
        (configuration_problems, (DOCS / "configuration.md").read_text().replace("| `250` |", "| `200` |")),
        (configuration_problems, (DOCS / "configuration.md").read_text().replace("`rank.bins`", "`rank.bin`")),
    ],
)
def test_a_broken_document_is_found(check: Callable[[str], list[str]], text: str, project: Path) -> None:
    assert check(text)
