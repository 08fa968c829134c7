"""The code of a user's component and what it imports from her own folder, as discovery loads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.components.own_code import code_version, files_of, is_ours
from harness.components.registries import METHODS
from tests.toy import SINGLE_PATH, user_folder

Version = Callable[..., tuple[str, list[str]]]
MINE = SINGLE_PATH.format(name="mine", type="Mine")


@pytest.fixture
def version(tmp_path: Path) -> Version:
    """The version of the method "mine" in a folder with these files, and the names of the files that it is made of."""
    known: dict[str, str] = {}

    def of(files: dict[str, str]) -> tuple[str, list[str]]:
        folder = tmp_path / str(len(known))
        known[str(folder)] = ""
        folder.mkdir()
        with user_folder(folder, files), pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(folder)
            METHODS.get("mine")
            entry = METHODS.entries["mine"]
            return code_version(entry), list(files_of(entry))

    return of


def test_a_file_by_itself(version: Version) -> None:
    (first, files), (second, _) = version({"methods/mine.py": MINE}), version({"methods/mine.py": MINE + "# more\n"})
    assert first == second and "+" not in first and files == ["methods/mine.py"]
    assert version({"methods/mine.py": MINE + "x = 1\n"})[0] != first


CASES = {
    "a neighbour": ("from ._lib import x\n", "methods/_lib.py"),
    "a name of its package": ("from . import _lib\n", "methods/_lib.py"),
    "the user's own folder": ("import lib_of_mine\n", "lib_of_mine.py"),
    "a package there": ("from package_of_mine.lib import x\n", "package_of_mine/lib.py"),
    "within a function": ("def f():\n    from ._lib import x\n", "methods/_lib.py"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_it_imports_from_the_users_folder_counts(name: str, version: Version) -> None:
    statement, file = CASES[name]
    project = {"methods/mine.py": statement + MINE, "package_of_mine/__init__.py": ""}
    first, files = version({**project, file: "x = 1\n"})
    commented, _ = version({**project, file: "x = 1  # one\n"})
    other, _ = version({**project, file: "x = 2\n"})
    assert file in files and first == commented != other
    assert first.partition("+")[0] == other.partition("+")[0]


def test_imports_of_imports_count_once_each(version: Version) -> None:
    project = {"methods/mine.py": "from ._a import x\n" + MINE, "methods/_a.py": "from ._b import x\n"}
    first, files = version({**project, "methods/_b.py": "from . import _a\nx = 1\n"})  # in a circle
    other, _ = version({**project, "methods/_b.py": "from . import _a\nx = 2\n"})
    assert sorted(files) == ["methods/_a.py", "methods/_b.py", "methods/mine.py"] and first != other


def test_exchanged_contents_of_two_files_count(version: Version) -> None:
    project = {"methods/mine.py": "from ._a import x\nfrom ._b import y\n" + MINE}
    one, other = "x = y = 1\n", "x = y = 2\n"
    first, _ = version({**project, "methods/_a.py": one, "methods/_b.py": other})
    second, _ = version({**project, "methods/_a.py": other, "methods/_b.py": one})
    assert first != second


def test_a_package_counts_with_its_modules(version: Version) -> None:
    project = {"methods/mine/__init__.py": "from .lib import x\n" + MINE}
    first, files = version({**project, "methods/mine/lib.py": "x = 1\n"})
    assert files == ["methods/mine/__init__.py", "methods/mine/lib.py"]
    assert version({**project, "methods/mine/lib.py": "x = 2\n"})[0] != first


def test_a_class_that_is_imported_on_first_use_counts(version: Version) -> None:
    register = 'from harness.components.registries import METHODS\nMETHODS.register("mine", lazy="._mine:Mine")\n'
    lazy = MINE.replace('@METHODS.register("mine")\n', "")
    first, files = version({"methods/mine.py": register, "methods/_mine.py": lazy})
    assert files == ["methods/mine.py", "methods/_mine.py"]
    assert version({"methods/mine.py": register, "methods/_mine.py": lazy + "x = 1\n"})[0] != first


def test_packages_and_shipped_files_do_not_count(version: Version) -> None:
    text = "import json, numpy\nfrom harness.components import method\n" + MINE
    assert version({"methods/mine.py": text})[1] == ["methods/mine.py"]
    METHODS.get("spos")
    assert is_ours(METHODS.entries["spos"].file)
