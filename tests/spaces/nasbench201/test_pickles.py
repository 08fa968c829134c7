"""The restricted unpickler: it reads what data sets are made of, and runs nothing."""

from __future__ import annotations

import codecs
import io
import os
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.components.discovery import component
from harness.errors import DataError
from tests.data.formats import python2_pickle, random_bytes

pickles: Any = component("spaces.nasbench201.benchmark.pickles")


def read_pickle(path: Path) -> dict[str, Any]:
    document = pickles.RestrictedUnpickler(io.BytesIO(pickles.sound(path.read_bytes())), encoding="bytes").load()
    return {key.decode() if isinstance(key, bytes) else key: pickles.finished(one) for key, one in document.items()}


class _Encoded:
    """Bytes as old pickles write them: text, and the encoding that makes bytes of it."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return codecs.encode, ("\xff", self.encoding)


def test_bytes_may_be_written_as_latin_text_and_in_no_other_encoding(tmp_path: Path) -> None:
    (file := tmp_path / "latin").write_bytes(pickle.dumps({"raw": _Encoded("latin1")}))
    assert read_pickle(file) == {"raw": b"\xff"}
    (other := tmp_path / "rot").write_bytes(pickle.dumps({"raw": _Encoded("rot13")}))
    assert "unknown encoding" in refused(other)


DOCUMENT: dict[str, Any] = {
    "batch_label": "training batch 1 of 5",
    "labels": [6, 9, 9, 4],
    "data": random_bytes(4, 3072),
    "mean": np.linspace(0, 1, 12),
}


def refused(path: Path) -> str:
    with pytest.raises(DataError) as raised:
        read_pickle(path)
    return str(raised.value)


def test_what_python_2_wrote(tmp_path: Path) -> None:
    content = python2_pickle(DOCUMENT)
    theirs = pickle.loads(content, encoding="latin1")  # the test's own writer must write real pickles
    assert np.array_equal(theirs["data"], DOCUMENT["data"]) and theirs["batch_label"] == DOCUMENT["batch_label"]
    (file := tmp_path / "data_batch_1").write_bytes(content)
    found = read_pickle(file)
    assert list(found) == list(DOCUMENT)
    assert found["labels"] == DOCUMENT["labels"]
    assert found["batch_label"] == b"training batch 1 of 5"
    for key in ("data", "mean"):
        assert found[key].dtype == DOCUMENT[key].dtype and np.array_equal(found[key], DOCUMENT[key])


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("before_numpy_2", [False, True])
def test_what_python_3_writes(tmp_path: Path, protocol: int, before_numpy_2: bool) -> None:
    arrays = {"data": random_bytes(4, 3072), "columns": np.asfortranarray(random_bytes(3, 5))}
    document = {**arrays, "label": np.int64(3), "labels": [6, 9], "raw": b"\xff\x00"}
    content = pickle.dumps(document, protocol)
    if before_numpy_2:  # its modules had other names; newer protocols write their lengths, too
        content = content.replace(b"numpy._core", b"numpy.core")
        content = content.replace(b"\x8c\x16numpy.core", b"\x8c\x15numpy.core")
        content = content.replace(b"\x8c\x13numpy.core", b"\x8c\x12numpy.core")
        content = _without_frames(content) if protocol >= 4 else content
        assert b"numpy.core" in content and b"_core" not in content
    (file := tmp_path / "batch").write_bytes(content)
    found = read_pickle(file)
    assert found["label"] == 3 and found["labels"] == [6, 9] and found["raw"] == b"\xff\x00"
    for key, array in arrays.items():
        assert found[key].dtype == np.uint8 and np.array_equal(found[key], array)


def _without_frames(content: bytes) -> bytes:
    """A frame says how long it is; a pickle may also have none."""
    frames = [position for operation, _, position in pickletools.genops(content) if operation.name == "FRAME"]
    for position in reversed(frames):
        assert position is not None
        content = content[:position] + content[position + 9 :]
    return content


class Command:
    """Runs a command when it is unpickled by Python's own means."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.reduced = function, arguments

    def __reduce__(self) -> Any:
        return self.reduced


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("where", ["whole", "in place of the data", "among the labels"])
def test_a_pickle_that_would_run_a_command_runs_nothing(tmp_path: Path, protocol: int, where: str) -> None:
    victim = tmp_path / "was here"
    command = Command(os.system, f"touch '{victim}'")
    document: Any = {"data": random_bytes(2, 3072), "labels": [1, 2]}
    document = {
        "whole": command,
        "in place of the data": {**document, "data": command},
        "among the labels": {**document, "labels": [1, command]},
    }[where]
    content = pickle.dumps(document, protocol)
    pickle.loads(content)
    assert victim.exists()  # the command works
    victim.unlink()
    (file := tmp_path / "data_batch_1").write_bytes(content)
    assert "refused: it asks for posix.system" in refused(file)
    assert not victim.exists()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("builtins eval", b"X\x01\x00\x00\x001\x85"),
        ("numpy load", b"X\x01\x00\x00\x00f\x85"),
        ("numpy.core.multiarray fromfile", b")"),
        ("numpy._core.multiarray._reconstruct __globals__", b")"),
        ("builtins getattr", b")"),
        ("copyreg _reconstructor", b")"),
    ],
)
def test_names_that_no_data_file_needs(tmp_path: Path, name: str, arguments: bytes) -> None:
    module, attribute = name.split()
    content = b"\x80\x02c" + module.encode() + b"\n" + attribute.encode() + b"\n" + arguments + b"R."
    (file := tmp_path / "batch").write_bytes(content)
    assert f"refused: it asks for {module}.{attribute}" in refused(file)


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\n"
TYPE = b"cnumpy\ndtype\n"
ENCODE = b"c_codecs\nencode\n"


@pytest.mark.parametrize(
    "program",
    [
        ARRAY,
        b"}U\x01a" + ARRAY + b"s",  # a name as data
        b"}U\x01a" + TYPE + b"U\x02u1\x85Rs",
        b"}U\x01a" + TYPE + b"U\x01O\x85Rs",
        b"}U\x01a" + ARRAY + b"cnumpy\nndarray\n)U\x01b\x87Rs",  # no content
        b"}U\x01a" + ARRAY + TYPE + b")U\x01b\x87Rs",  # of another class
        b"}U\x01a" + ARRAY + b"}U\x05__a__Nsbs",  # attributes of a name
        b"}U\x01a" + ARRAY + b"N}U\x08__call__Ns\x86bs",
        b"}U\x01a" + ENCODE + b"X\x01\x00\x00\x00aU\x03zip\x86Rs",
        b"}U\x01acnumpy\nndarray\n)\x81s",
        b"}U\x01aU\x02idQs",  # something outside of the file
        b"\x82\x01",
    ],
)
def test_misused_names(tmp_path: Path, program: bytes) -> None:
    (file := tmp_path / "batch").write_bytes(b"\x80\x02" + program + b".")
    with pytest.raises((DataError, TypeError, ValueError, AttributeError, KeyError, pickle.UnpicklingError)):
        read_pickle(file)
    (file := tmp_path / "good").write_bytes(python2_pickle(DOCUMENT))  # nothing has changed for others
    assert np.array_equal(read_pickle(file)["data"], DOCUMENT["data"])


@pytest.mark.parametrize(
    "array", [np.array([1, "a"], object), np.array(["text"]), np.array([(1, 2)], "i4,i4"), np.array([], "M8[s]")]
)
@pytest.mark.parametrize("protocol", [2, 5])
def test_arrays_of_anything_but_numbers(tmp_path: Path, array: Any, protocol: int) -> None:
    (file := tmp_path / "batch").write_bytes(pickle.dumps({"data": array}, protocol))
    refused(file)


def test_a_place_beyond_the_end_is_refused_before_memory_is_reserved(tmp_path: Path) -> None:
    # Two gigabytes, for a file of a few bytes.
    (file := tmp_path / "batch").write_bytes(b"\x80\x02}r" + (1 << 27).to_bytes(4, "little") + b".")
    assert "beyond its end" in refused(file)


class Calling:
    """Calls `os.system` when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("exit 3",)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("written", ["raw", "saved"])
def test_the_advice_to_read_a_file_unsafely_is_not_passed_on(tmp_path: Path, written: str) -> None:
    import torch

    from harness.training.weights import read

    file = tmp_path / "weights.pth"
    if written == "raw":
        file.write_bytes(pickle.dumps({"model": Calling()}))
    else:
        torch.save({"model": Calling()}, file)
    with pytest.raises(DataError, match=f"^{file}: not a file of tensors that can be read safely ") as caught:
        read(file)
    told = str(caught.value)
    assert "weights_only" not in told and "trusted" not in told
    assert ("Unsupported operand" if written == "raw" else "it refers to posix.system") in told
