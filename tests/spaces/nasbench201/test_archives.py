"""The benchmarks' own files: what is read from them, and that nothing in them runs unless they are trusted."""

from __future__ import annotations

import bz2
import pickle
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nas_201_api
import nats_bench
import numpy as np
import pytest
import torch

from harness.components.discovery import component
from harness.components.registries import SPACES
from harness.errors import DataError
from harness.truth.listing import Listing
from tests.official_files import SEEDS, archive, made_up, malicious, write_nats

archives = component("spaces.nasbench201.benchmark.archives")
read_nats: Callable[..., Listing] = archives.read_nats
read_official: Callable[..., Listing] = archives.read_official
import_table: Callable[..., Any] = component("spaces.nasbench201.benchmark.importing").import_table

NUMBERS = (3, 11718, 15624)
TEXTS = [SPACES.get("nasbench201")().format(SPACES.get("nasbench201")().architecture(n)) for n in NUMBERS]


def expected(dataset: str, images: str) -> list[float]:
    """The mean over the seeds."""
    return [
        float(np.mean([made_up(number, dataset, images, seed) for seed in SEEDS[dataset]]))
        for number in range(len(TEXTS))
    ]


def check(listing: Listing) -> None:
    assert list(listing.architectures) == TEXTS
    assert listing.columns == {
        ("cifar10", "valid"): expected("cifar10-valid", "x-valid"),
        ("cifar10", "test"): expected("cifar10", "ori-test"),
        ("cifar100", "valid"): expected("cifar100", "x-valid"),
        ("cifar100", "test"): expected("cifar100", "x-test"),
        ("imagenet16-120", "valid"): expected("ImageNet16-120", "x-valid"),
        ("imagenet16-120", "test"): expected("ImageNet16-120", "x-test"),
    }


@pytest.fixture(scope="module")
def official() -> dict[str, Any]:
    return archive(nas_201_api, TEXTS, ("less", "full"))


@pytest.fixture(scope="module")
def nats() -> dict[str, Any]:
    return archive(nats_bench, TEXTS, ("12", "200"))


# The official file was written by a version of torch that knew only the old form.
@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("trust", [False, True])
def test_the_official_file(zipped: bool, trust: bool, official: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "NAS-Bench-201-v1_1-096897.pth"
    torch.save(official, file, _use_new_zipfile_serialization=zipped)
    listing = read_official(file, trust)
    check(listing)
    assert (listing.kind, listing.version) == ("nas-bench-201", "v1_1")
    assert str(listing.reader).startswith("nas-bench-201 ")
    with pytest.raises(DataError, match=r"NAS-Bench-201-v1_1-096897.pth: holds 3 architectures, .* has 15,625"):
        import_table(file, trust)


@pytest.mark.parametrize("name", ["NATS-tss-v1_0-3ffb9.pickle.pbz2", "NATS-tss-v1_0-3ffb9-simple"])
@pytest.mark.parametrize("trust", [False, True])
def test_nats_bench(name: str, trust: bool, nats: dict[str, Any], tmp_path: Path) -> None:
    write_nats(tmp_path / name, nats)
    listing = read_nats(tmp_path / name, trust)
    check(listing)
    assert (listing.kind, listing.version) == ("nats-bench", "v1_0")
    with pytest.raises(DataError, match="holds 3 architectures"):
        import_table(tmp_path / name, trust)


def test_without_its_package_nats_bench_is_refused(
    nats: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_nats(tmp_path / "n.pickle.pbz2", nats)
    monkeypatch.setitem(__import__("sys").modules, "nats_bench.api_utils", None)
    with pytest.raises(DataError, match=r"n.pickle.pbz2: .* not installed: `pip install nats_bench`"):
        read_nats(tmp_path / "n.pickle.pbz2")


def save(path: Path, document: Any) -> None:
    if path.suffix == ".pth":
        torch.save(document, path)
    else:
        path.write_bytes(bz2.compress(pickle.dumps(document)))


READERS: dict[str, Callable[[Path, bool], Listing]] = {"b.pth": read_official, "b.pickle.pbz2": read_nats}


@pytest.mark.parametrize("name", READERS)
def test_a_pickle_that_would_run_a_command_runs_nothing_unless_trusted(
    name: str, official: dict[str, Any], nats: dict[str, Any], tmp_path: Path
) -> None:
    victim, file = tmp_path / "victim", tmp_path / name
    save(file, malicious(victim, official if name == "b.pth" else nats))
    with pytest.raises(DataError) as refusal:
        READERS[name](file, False)
    assert not victim.exists()
    message = str(refusal.value)
    assert message.startswith(f"{file}: this pickle refers to posix.system") and "--trust" in message
    assert "\n" not in message
    check(READERS[name](file, True))
    assert victim.exists()


@pytest.mark.parametrize("module", ["os.system", "builtins.eval", "posix.system", "builtins.getattr"])
@pytest.mark.parametrize("name", READERS)
def test_commands_are_refused_by_any_name(module: str, name: str, tmp_path: Path) -> None:
    """By the bytes themselves: no object that can be made here stands for all of these."""
    where, _, function = module.partition(".")
    text = pickle.GLOBAL + f"{where}\n{function}\n".encode() + b"(S'touch victim'\ntR."
    if name == "b.pth":
        torch.save({}, tmp_path / name, _use_new_zipfile_serialization=False)
        whole = (tmp_path / name).read_bytes()
        # Magic number, protocol and machine stand before the contents, each a pickle of its own.
        start = whole.index(pickle.dumps({}, 2), whole.index(b"type_sizes"))
        (tmp_path / name).write_bytes(whole[:start] + b"\x80\x02" + text)
    else:
        (tmp_path / name).write_bytes(bz2.compress(text))
    with pytest.raises(DataError, match=rf"refers to ({where}\.)?{function}, .* use --trust"):
        READERS[name](tmp_path / name, False)


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_and_other_things(
    name: str, official: dict[str, Any], nats: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / name

    def refused() -> str:
        with pytest.raises(DataError) as refusal:
            READERS[name](file, False)
        assert str(refusal.value).startswith(f"{file}: ") and "\n" not in str(refusal.value)
        assert "--trust" not in str(refusal.value)
        return str(refusal.value)

    whole = official if name == "b.pth" else nats
    save(file, whole)
    content = file.read_bytes()
    for length in (0, 1, 100, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:length])
        assert "not a readable file of the benchmark" in refused()
    file.write_text("94.37")
    assert "not a readable file of the benchmark" in refused()
    save(file, torch.zeros(3).tolist())
    assert "it holds list, not dict" in refused()
    save(file, {"weights": 1.0})
    assert "it has no list 'meta_archs'" in refused()
    save(file, {**whole, "arch2infos": {0: {"less": {}}}})
    assert "architecture 0 has no results" in refused()
    save(file, {**whole, "arch2infos": {}})
    assert "holds no results" in refused()
    save(file, {**whole, "meta_archs": TEXTS[::-1]})
    assert f"architecture 0 ({TEXTS[2]}): its results belong to {TEXTS[0]}" in refused()


def test_a_small_file_does_not_take_all_memory(tmp_path: Path) -> None:
    """It keeps an object at a far place, for which the unpickler would reserve 6 GB."""
    content = b"\x80\x02}r" + (4 * 10**8).to_bytes(4, "little") + b"."
    (file := tmp_path / "b.pickle.pbz2").write_bytes(bz2.compress(content))
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(DataError, match=r"b\.pickle\.pbz2: reading it takes far more memory"):
        read_nats(file)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_results_that_are_incomplete_or_of_another_training(tmp_path: Path) -> None:
    file = tmp_path / "b.pth"
    document = archive(nas_201_api, TEXTS, ("less", "full"), epochs=12)
    save(file, document)
    with pytest.raises(DataError, match=r"architecture 0 .*: trained for 12 epochs on cifar10-valid, not 200"):
        read_official(file)
    document = archive(nas_201_api, TEXTS, ("less", "full"))
    del document["arch2infos"][1]["full"]["dataset_seed"]["cifar100"]
    save(file, document)
    with pytest.raises(DataError, match=r"architecture 1 .*: no 'cifar100'"):
        read_official(file)


def test_an_architecture_without_results_is_left_out(official: dict[str, Any], tmp_path: Path) -> None:
    infos = {number: info for number, info in official["arch2infos"].items() if number != 1}
    save(tmp_path / "b.pth", {**official, "arch2infos": infos})
    listing = read_official(tmp_path / "b.pth")
    assert list(listing.architectures) == [TEXTS[0], TEXTS[2]]
    assert all(len(values) == 2 for values in listing.columns.values())
