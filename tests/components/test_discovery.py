"""Discovery, on real miniature projects built in a temporary folder from strings."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from harness.cli import main
from harness.components import discovery
from harness.components.registries import METHODS, SPACES
from harness.errors import ComponentWarning, NameCollision, UnknownName, UserError

Write = Callable[[str, str], Path]

pytestmark = pytest.mark.filterwarnings("error::harness.errors.ComponentWarning")

METHOD = """
from harness.components.registries import METHODS

@METHODS.register("{name}")
class Mine:
    '''A method of my own.'''
    word = "{name}"
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes a file: `ours/…` stands beside the engine, `mine/…` is the current folder."""

    def write_file(path: str, text: str) -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(text))
        return file

    (tmp_path / "ours").mkdir()
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.syspath_prepend(str(tmp_path / "mine"))  # as `python -m` does
    with discovery.fresh(ours=tmp_path / "ours"):
        yield write_file


def test_a_users_file_is_a_method_without_any_other_edit(write: Write) -> None:
    file = write("mine/methods/mine.py", METHOD.format(name="mine"))
    assert METHODS.names() == ["mine"]
    assert METHODS.get("mine").word == "mine"
    [(_, entry)] = METHODS.items()
    assert (entry.file, entry.line, entry.summary) == (file, 4, "A method of my own.")
    assert METHODS.get("mine").__module__ == "harness_components.user.methods.mine"


def test_ours_and_the_users_stand_side_by_side_under_equal_file_names(write: Write) -> None:
    write("ours/methods/search.py", METHOD.format(name="theirs"))
    write("mine/methods/search.py", METHOD.format(name="mine"))
    assert METHODS.names() == ["mine", "theirs"]
    assert METHODS.get("theirs").__module__ == "harness_components.ours.methods.search"


def test_no_file_name_shadows_a_library_or_the_harness(write: Write) -> None:
    before = {"methods", "spaces"} & set(sys.modules)
    for name in ("random", "torch", "harness", "click", "methods"):
        write(f"mine/methods/{name}.py", METHOD.format(name=f"my-{name}"))
    write("mine/spaces/torch.py", "import random\nassert hasattr(random, 'randrange')\n" + METHOD.format(name="tt"))
    write("mine/spaces/harness/__init__.py", METHOD.format(name="hh"))
    write("mine/harness_components/__init__.py", "raise AssertionError('shadowed')\n")
    assert METHODS.names() == ["hh", "my-click", "my-harness", "my-methods", "my-random", "my-torch", "tt"]
    assert sys.modules["random"] is random
    assert sys.modules["harness.components.discovery"] is discovery
    assert {"methods", "spaces"} & set(sys.modules) == before


def test_relative_imports_packages_and_lazy_targets_work_in_a_folder(write: Write) -> None:
    write("mine/methods/_shared.py", "WORD = 'shared'\n")
    write(
        "mine/methods/whole/__init__.py",
        """
        from harness.components.registries import METHODS
        from .._shared import WORD
        from .part import PART

        METHODS.register("whole")(lambda: (WORD, PART))
        METHODS.register("later", lazy=".heavy:Heavy")
        """,
    )
    write("mine/methods/whole/part.py", "PART = 'part'\n")
    write("mine/methods/whole/heavy.py", "class Heavy:\n    pass\n")
    assert METHODS.get("whole")() == ("shared", "part")
    assert "harness_components.user.methods.whole.heavy" not in sys.modules
    assert METHODS.get("later").__name__ == "Heavy"


def test_private_files_tests_and_plain_folders_are_not_loaded(write: Write) -> None:
    skipped = ("_draft.py", "test_mine.py", "mine_test.py", "conftest.py", "tests/__init__.py", "notes/x.py")
    for name in skipped:
        write(f"mine/methods/{name}", "raise AssertionError('loaded')\n")
    write("mine/methods/notes.txt", "not Python")
    write("mine/methods/__init__.py", "raise AssertionError('loaded')\n")
    write("mine/methods/real.py", METHOD.format(name="real"))
    assert METHODS.names() == ["real"]


def test_one_name_in_two_folders_names_both_files(write: Write) -> None:
    ours = write("ours/methods/spos.py", METHOD.format(name="spos"))
    mine = write("mine/methods/my_spos.py", METHOD.format(name="spos"))
    write("mine/methods/other.py", METHOD.format(name="other"))
    with pytest.warns(ComponentWarning, match="my_spos.py is left out"), pytest.raises(NameCollision) as caught:
        METHODS.get("spos")
    assert f"{ours}:4" in str(caught.value)
    assert f"{mine}:4" in str(caught.value)
    assert METHODS.get("other") and METHODS.names() == ["other", "spos"]  # nothing else is refused
    write("mine/methods/my_spos.py", METHOD.format(name="my-spos") + "\n")
    assert METHODS.get("spos") and METHODS.names() == ["my-spos", "other", "spos"]


def test_a_file_and_a_package_of_one_name_are_refused(write: Write) -> None:
    file = write("mine/methods/twice.py", METHOD.format(name="file"))
    package = write("mine/methods/twice/__init__.py", METHOD.format(name="package"))
    with pytest.warns(ComponentWarning, match="two components are both named 'twice'") as caught:
        assert METHODS.names() == []
    assert str(file) in str(caught[0].message)
    assert str(package) in str(caught[0].message)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("x = 1\n\ny = x / 0\n", 3, "ZeroDivisionError: division by zero"),
        ("x = 1\nif x\n    pass\n", 2, "SyntaxError: expected ':'"),
        ("import no_such_library\n", 1, "ModuleNotFoundError: No module named 'no_such_library'"),
        ("import json\n\n\n\njson.loads('{')\n", 5, "JSONDecodeError: "),
        ("import sys\nsys.exit('bye')\n", 2, "SystemExit: bye"),
    ],
)
def test_a_broken_file_is_told_with_its_line_once_and_left_out(write: Write, text: str, line: int, reason: str) -> None:
    file = write("mine/spaces/broken.py", text)
    write("mine/methods/fine.py", METHOD.format(name="fine"))
    with pytest.warns(ComponentWarning) as told:
        assert METHODS.get("fine").word == "fine"
    [warning] = told
    assert f"{file}:{line} does not import: {reason}" in str(warning.message)
    assert "It is left out: fix it, or start its name with an underscore" in str(warning.message)
    assert METHODS.names() == ["fine"]  # and no second warning: they are errors in this file


def test_what_a_broken_file_registered_before_it_broke_is_forgotten(write: Write) -> None:
    write("mine/methods/half.py", METHOD.format(name="half") + "\nimport no_such_library\n")
    with pytest.warns(ComponentWarning, match="does not import"), pytest.raises(UnknownName, match="no_such_library"):
        METHODS.get("half")
    assert METHODS.names() == []


def test_a_file_keeps_what_it_registers_though_a_broken_one_imports_it(write: Write) -> None:
    write("mine/methods/aa.py", "from .bb import Mine\n1 / 0\n" + METHOD.format(name="aa"))
    write("mine/methods/bb.py", METHOD.format(name="bb"))
    with pytest.warns(ComponentWarning) as told:
        assert METHODS.names() == ["bb"]
    assert len(told) == 1 and "aa.py:2 does not import" in str(told[0].message)


def test_a_broken_file_that_is_deleted_is_forgotten(write: Write) -> None:
    file = write("mine/methods/gone.py", "1 / 0\n")
    write("mine/methods/fine.py", METHOD.format(name="fine"))
    with pytest.warns(ComponentWarning):
        assert METHODS.names() == ["fine"]
    file.unlink()
    assert METHODS.names() == METHODS.names() == ["fine"]
    with pytest.raises(UnknownName) as caught:
        METHODS.get("gone")
    assert "does not import" not in str(caught.value)


def test_a_broken_neighbour_is_named_with_the_file_that_wanted_it(write: Write) -> None:
    neighbour = write("mine/methods/_broken.py", "\nraise ValueError('no good')\n")
    file = write("mine/methods/wants.py", "from ._broken import X\n" + METHOD.format(name="wants"))
    with pytest.warns(ComponentWarning) as told:
        assert METHODS.names() == []
    assert f"{neighbour}:2 does not import (imported by {file}): ValueError: no good" in str(told[0].message)
    neighbour.write_text("X = 'repaired'\n")
    assert METHODS.names() == ["wants"]


def test_a_repaired_file_is_found_without_a_new_process(write: Write) -> None:
    file = write("mine/methods/mine.py", METHOD.format(name="mine") + "\n1 / 0\n")
    with pytest.warns(ComponentWarning), pytest.raises(UnknownName):
        METHODS.get("mine")
    file.write_text(METHOD.format(name="mine"))
    assert METHODS.get("mine").word == "mine"


def test_further_folders_of_the_user_are_read(write: Write) -> None:
    for folder in ("datasets", "benchmarks", "presets", "spaces", "studies/presets"):
        write(f"mine/{folder}/mine.py", METHOD.format(name=folder.replace("/", "-")))
    write("mine/datasets/_shared.py", "raise AssertionError('loaded')\n")
    assert METHODS.names() == ["benchmarks", "datasets", "presets", "spaces", "studies-presets"]
    assert METHODS.get("presets").__module__ == "harness_components.user.presets.mine"


def test_lookups_while_loading_do_not_recurse(write: Write) -> None:
    write("mine/methods/aa.py", METHOD.format(name="aa"))
    write("mine/methods/bb.py", METHOD.format(name="bb") + "SEEN = METHODS.names()\n")
    write("mine/methods/cc.py", METHOD.format(name="cc"))
    assert METHODS.names() == ["aa", "bb", "cc"]
    assert sys.modules["harness_components.user.methods.bb"].__dict__["SEEN"] == ["aa", "bb"]


def test_each_folder_is_loaded_once_and_a_second_project_is_added(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("mine/methods/mine.py", METHOD.format(name="mine"))
    first = METHODS.get("mine")
    write("other/methods/mine.py", METHOD.format(name="other"))
    monkeypatch.chdir(tmp_path / "other")
    assert METHODS.names() == ["mine", "other"]
    assert METHODS.get("mine") is first
    monkeypatch.chdir(tmp_path / "mine")
    assert METHODS.get("mine") is first


def test_working_beside_the_engine_loads_ours_once(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("ours/methods/spos.py", METHOD.format(name="spos"))
    monkeypatch.chdir(tmp_path / "ours")
    assert METHODS.get("spos").__module__ == "harness_components.ours.methods.spos"
    assert "harness_components.user" not in sys.modules


def test_a_deleted_current_directory_leaves_ours(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("ours/methods/spos.py", METHOD.format(name="spos"))
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert METHODS.names() == ["spos"]


def _install(write: Write, body: str) -> None:
    """An installed distribution, as a package installer leaves it on the path."""
    info = "site/my_plugin-1.0.dist-info"
    write(f"{info}/METADATA", "Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.0\n")
    write(f"{info}/entry_points.txt", "[harness.components]\nmine = my_plugin_of_a_test\n")
    write("site/my_plugin_of_a_test.py", body)


def test_entry_points_bring_their_modules(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(write, METHOD.format(name="plugged"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert METHODS.get("plugged").word == "plugged"
    discovery.reset(ours=tmp_path / "ours")
    assert "my_plugin_of_a_test" not in sys.modules
    assert METHODS.names() == ["plugged"]


def test_a_broken_entry_point_names_its_distribution_and_line(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(write, "import json\njson.loads('{')\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    write("mine/methods/fine.py", METHOD.format(name="fine"))
    with pytest.warns(ComponentWarning) as told:
        assert METHODS.names() == ["fine"]
    assert f"{tmp_path / 'site' / 'my_plugin_of_a_test.py'}:2 does not import" in str(told[0].message)
    assert "entry point 'mine' of my-plugin and is left out" in str(told[0].message)


def test_studies_are_listed_not_loaded(write: Write) -> None:
    ours = write("ours/studies/ablation.py", "raise AssertionError('loaded')\n")
    mine = write("mine/studies/ablation.py", "raise AssertionError('loaded')\n")
    write("mine/studies/_draft.py", "")
    METHODS.names()
    assert discovery.study_files() == [ours, mine]


def test_any_file_is_loaded_once_with_its_neighbours_in_reach(write: Write) -> None:
    write("elsewhere/numbers.py", "LIMIT = 3\n")
    write("elsewhere/study.py", "from .numbers import LIMIT\n")
    write("again/study.py", "LIMIT = 4\n")
    module = discovery.load_file("../elsewhere/study.py")
    assert module.LIMIT == 3
    assert discovery.load_file("../elsewhere/../elsewhere/study.py") is module
    assert discovery.load_file("../again/study.py").LIMIT == 4
    assert "study" not in sys.modules


def test_a_study_of_ours_has_one_identity_and_reaches_our_reports(write: Write) -> None:
    write("ours/reports/tables.py", "TITLE = 'A table'\n")
    file = write("ours/studies/ablation.py", "from ..reports.tables import TITLE\n")
    assert discovery.load_file(file) is discovery.component("studies.ablation")
    assert discovery.component("studies.ablation").TITLE == "A table"


def test_a_file_that_cannot_be_loaded_is_a_users_error(write: Write) -> None:
    with pytest.raises(UserError, match=r"there is no file nowhere\.py"):
        discovery.load_file("nowhere.py")
    text = write("mine/notes.txt", "")
    with pytest.raises(UserError, match="is not a Python file"):
        discovery.load_file(text)
    with pytest.raises(UserError, match="is not a component"):
        discovery.component("harness.errors")


def test_reset_forgets_what_was_loaded_and_fresh_restores_it(write: Write, tmp_path: Path) -> None:
    file = write("mine/methods/mine.py", METHOD.format(name="mine"))
    before = METHODS.get("mine")
    with discovery.fresh(ours=tmp_path / "ours"):
        assert METHODS.entries == {}
        assert METHODS.get("mine") is not before
    assert METHODS.get("mine") is before
    assert sys.modules[before.__module__].Mine is before
    file.unlink()
    discovery.reset(ours=tmp_path / "ours")
    assert METHODS.names() == []


def test_our_own_components_are_reachable_by_path() -> None:
    module = discovery.component("spaces.nasbench201")
    assert module.__name__ == "harness_components.ours.spaces.nasbench201"
    assert SPACES.get("nasbench201") is module.NasBench201


def test_an_installed_package_brings_components_to_the_command_line(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the documents show it: a distribution on the path whose metadata names modules of a package."""
    info = "site/my_package-1.0.dist-info"
    write(f"{info}/METADATA", "Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    points = "[harness.components]\nmethods = my_package_of_a_test.methods\nempty = my_package_of_a_test.empty\n"
    write(f"{info}/entry_points.txt", points)
    write("site/my_package_of_a_test/__init__.py", "")
    write("site/my_package_of_a_test/empty.py", "")
    file = write("site/my_package_of_a_test/methods.py", METHOD.format(name="plugged"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    assert main(["list", "methods"]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"methods\n  plugged  A method of my own.  {file}:4\n"
    empty = tmp_path / "site" / "my_package_of_a_test" / "empty.py"
    (line,) = shown.err.splitlines()
    assert line.startswith(f"warning: {empty} registers nothing")
