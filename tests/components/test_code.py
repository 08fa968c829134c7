"""The code of a file: what an edit may change without changing it, what counts, and hashes as they are stored."""

from __future__ import annotations

import pytest

from harness.components.code import Import, RecordedCode, code_of, recorded_code, text_digest, version_of_text
from tests.code_samples import METHOD, SAMPLES


def digest(text: str) -> str:
    code = code_of(text.encode())
    assert code is not None
    return code.digest


def test_the_hashes_are_those_that_are_stored() -> None:
    assert {text: digest(text) for text in SAMPLES} == SAMPLES


SAME = {
    "comment": METHOD.replace("# One after the other.", "# Each in turn.") + "# The end.\n",
    "docstring of the module": METHOD.replace("A method of one path.", "My method."),
    "no docstring": METHOD.replace('    """As SPOS."""\n', ""),
    "text beside a field": METHOD.replace('    """Paths per step."""\n', ""),
    "blank lines": METHOD.replace("\n\n", "\n\n\n\n"),
    "quotes": METHOD.replace('"mine"', "'mine'"),
    "line breaks": METHOD.replace("draw(training, number)", "draw(\n  training,\n  number,\n )"),
    "indentation": METHOD.replace("    ", "  "),
    "parentheses": METHOD.replace("range(self.count)", "(range((self.count)))"),
    "notation of numbers": METHOD.replace("= 1\n", "= 0x1\n"),
    "line ends": METHOD.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("name", SAME)
def test_what_is_no_code_does_not_count(name: str) -> None:
    assert SAME[name] != METHOD and digest(SAME[name]) == digest(METHOD)


OTHER = {
    "decorator": METHOD.replace("@dataclass(frozen=True)\n", "@dataclass(frozen=True, order=True)\n"),
    "another decorator": METHOD.replace("    def paths", "    @checked\n    def paths"),
    "renamed local variable": METHOD.replace("number", "which"),
    "value": METHOD.replace("= 1\n", "= 2\n"),
    "kind of a number": METHOD.replace("= 1\n", "= 1.0\n"),
    "True for 1": METHOD.replace("= 1\n", "= True\n"),
    "text that is used": METHOD.replace('"mine"', '"yours"'),
    "import": METHOD.replace("._draws", "._drawn"),
    "order of statements": METHOD.replace("from ._draws import draw\n", "").replace(
        "from dataclasses", "from ._draws import draw\nfrom dataclasses"
    ),
    "None for nothing": METHOD.replace("number)", "number, None)"),
}


@pytest.mark.parametrize("name", OTHER)
def test_every_change_of_code_counts(name: str) -> None:
    assert digest(OTHER[name]) != digest(METHOD)


def test_a_deep_tree_is_code_like_any_other() -> None:
    long = "x = " + "+".join(["1"] * 800)
    assert digest(long) != digest(long + " + 1") and digest(long) == digest(long.replace("+", " + "))


def test_parts_of_an_f_string_are_joined_as_every_version_joins_them() -> None:
    assert digest('f"{a}" "b" f"{c}d"') == digest('f"{a}b{c}d"') != digest('f"{a}b{c}" + "d"')


def test_imports_are_found_wherever_they_are() -> None:
    text = "import a.b as c, d\ndef f():\n    from ..e import g, h\n    from . import i\n"
    code = code_of(text.encode())
    assert code is not None and set(code.imports) == {
        Import(0, "a.b"),
        Import(0, "d"),
        Import(2, "e", ("g", "h")),
        Import(1, "", ("i",)),
    }


def test_what_cannot_be_parsed_has_no_code() -> None:
    assert code_of(b"def f(:") is None and code_of(b"\x00") is None and version_of_text(b"x = (") is None


def test_an_old_version_is_known_by_the_copy_that_it_is_the_hash_of() -> None:
    texts = [METHOD.encode(), b"x = 1"]
    old, code = text_digest(texts[0]), version_of_text(texts[0])
    assert recorded_code({"method": old, "sampler": "f" * 16}, texts) == {
        "method": [old, code],
        "sampler": ["f" * 16, "f" * 16],  # no copy shows what that was
    }
    assert recorded_code({"method": "code:1+2"}, texts) == {"method": ["code:1+2", "code:1+2"]}


def test_old_versions_say_nothing_of_what_a_file_imports() -> None:
    old, new = RecordedCode("f" * 16, "code:1"), RecordedCode("code:1+2", "code:1+2")
    assert old.is_like("code:1") and old.is_like("code:1+2") and not old.is_like("code:2")
    assert new.is_like("code:1+2") and not new.is_like("code:1") and not new.is_like("code:1+3")
    declared = RecordedCode("code:1+2", "code:1+2", frozenset({"code:1+2", "code:5"}))
    assert declared.is_like("code:5") and not declared.is_like("code:6")
