"""Released supernet files: imported by name and shape, refused with what is wrong, used by trials."""

from __future__ import annotations

import argparse
import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.cli import main
from harness.components.registries import SPACES
from harness.components.space import network_settings
from harness.data.places import weights_folder
from harness.errors import DataError, InvalidConfiguration
from harness.stores.directory.store import DirectoryStore
from harness.study.configuration import RunConfig
from harness.study.trial import Trial
from harness.training.trial import run_trial
from harness.training.weights import start_from, stored
from tests.toy import user_folder

PATCH = 8
SMALL = ["--image-size", "16", "--image-channels", "1", "--classes", "10", "with", f"network.patch_size={PATCH}"]


def released(d: int = 32, m: int = 128, q: int = 32, head: int = 8, blocks: int = 5) -> dict[str, torch.Tensor]:
    """Names and shapes as in released files, in the sizes of the reduced space."""
    rng = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=rng) * 0.1

    patches = (16 // PATCH) ** 2
    weights = {"cls_token": normal(1, 1, d), "pos_embed": normal(1, patches + 1, d)}
    weights |= {"patch_embed_super.proj.weight": normal(d, 1, PATCH, PATCH), "patch_embed_super.proj.bias": normal(d)}
    for block in (f"blocks.{number}." for number in range(blocks)):
        linear = {"attn.qkv": (3 * q, d), "attn.proj": (d, q), "fc1": (m, d), "fc2": (d, m)}
        for name, shape in linear.items():
            weights |= {f"{block}{name}.weight": normal(*shape), f"{block}{name}.bias": normal(shape[0])}
        for name in ("attn_layer_norm", "ffn_layer_norm"):
            weights |= {f"{block}{name}.weight": normal(d), f"{block}{name}.bias": normal(d)}
        for table in ("k.embeddings_table_v", "k.embeddings_table_h", "v.embeddings_table_v", "v.embeddings_table_h"):
            weights[f"{block}attn.rel_pos_embed_{table}"] = normal(8, head)
    return (
        weights
        | {"norm.weight": normal(d), "norm.bias": normal(d), "head.weight": normal(10, d)}
        | {"head.bias": normal(10)}
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "data"))
    torch.save({"model": released(), "args": argparse.Namespace(lr=1e-3), "epoch": 500}, "supernet.pth")
    return tmp_path


def imported(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(["weights", "import", *words, "--space", "autoformer-reduced", *SMALL])
    captured = capsys.readouterr()
    return status, captured.out + captured.err


def test_a_search_runs_from_released_weights(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = imported(capsys, "supernet.pth", "--as", "mine")
    assert status == 0, text
    name = text.split(" as ")[1].split()[0]
    assert name.startswith("mine-") and f"with train.weights={name} train.epochs=0" in text
    assert main(["weights", "list"]) == 0 and name in capsys.readouterr().out

    config: dict[str, Any] = {
        "space": "autoformer-reduced",
        "dataset": "digits-16",
        "benchmark": None,
        "network": {"patch_size": PATCH},
        "train": {"epochs": 0, "weights": name},
        "rank": {"images": 32, "top1": False},
        "search": {"name": "best-of-n-random", "samples": 2, "limits": {"parameters": [None, 40_000]}},
    }
    asked = RunConfig.from_json(config)
    outcome = run_trial(asked)
    assert outcome.supernets is not None and outcome.cost["passes"] == 0 and outcome.result["found"]
    (network,) = outcome.supernets.networks
    given, own = released(), network.state_dict()
    assert torch.equal(own["blocks.4.qkv.weight"], given["blocks.4.attn.qkv.weight"])
    assert torch.equal(own["blocks.2.value_rows"], given["blocks.2.attn.rel_pos_embed_v.embeddings_table_v"])
    assert torch.equal(own["patches.weight"], given["patch_embed_super.proj.weight"])
    other = RunConfig.from_json(config | {"train": {"epochs": 0, "weights": "mine-0123456789ab"}})
    assert Trial(asked).key != Trial(other).key
    with pytest.raises(DataError, match=rf"mine-0123456789ab is not in .* \(there: {name}\); import them with"):
        run_trial(other)
    with pytest.raises(DataError, match="are weights of autoformer-reduced; the trial's space is autoformer"):
        start_from(name, "autoformer", (network,))


def test_what_does_not_fit_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = released()
    del weights["head.bias"]
    torch.save({"model": weights | {"cls_token": torch.zeros(1, 1, 31), "extra": torch.zeros(1)}}, "wrong.pth")
    status, text = imported(capsys, "wrong.pth")
    assert status == 2 and "wrong.pth is not a supernet of autoformer-reduced with these settings" in text
    assert "missing: head.bias; unknown: extra; of another shape: class_token is 1×1×31, not 1×1×32" in text
    assert not weights_folder().exists()


KINDS = ["bytes", "pickle", "missing", "code", "list"]


class Evil:
    def __reduce__(self) -> Any:
        return Path("executed").touch, ()


@pytest.mark.parametrize("content", [b"nothing", pickle.dumps(Evil(), 2), None, "code", "list"], ids=KINDS)
def test_files_of_other_kinds_are_refused_and_run_no_code(
    content: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if isinstance(content, str):
        held = io.BytesIO()
        torch.save({"model": Evil()} if content == "code" else {"model": [1, 2]}, held)
        content = held.getvalue()
    if content is not None:
        Path("wrong.pth").write_bytes(content)
    status, text = imported(capsys, "wrong.pth")
    assert status == 2 and "error: wrong.pth: " in text and not Path("executed").exists()


def test_names_are_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert imported(capsys, "supernet.pth", "--as", "a/b")[0] == 2
    with pytest.raises(InvalidConfiguration, match="train.weights is 'mine'; a name of `harness weights list` ends"):
        RunConfig.from_json({"train": {"weights": "mine"}})
    with pytest.raises(InvalidConfiguration, match="train.epochs must be at least 1, not 0"):
        RunConfig.from_json({"train": {"epochs": 0}})
    _, text = imported(capsys, "supernet.pth")
    name = text.split(" as ")[1].split()[0]
    (weights_folder() / f"{name}.pt").write_bytes(b"another content")
    with pytest.raises(DataError, match="the content is not what its name says"):
        stored(name)


def test_a_supernet_without_names_of_its_own_takes_its_own_names(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space: Any = SPACES.get("mobilenet-reduced")()
    settings = network_settings(space.Network(), classes=10, image_channels=3, image_size=16)
    torch.save(space.supernet(settings).state_dict(), "own.pt")
    inputs = ["--image-size", "16", "--classes", "10"]
    assert main(["weights", "import", "own.pt", "--space", "mobilenet-reduced", *inputs]) == 0
    assert main(["weights", "import", "own.pt", "--space", "mobilenet-reduced", *inputs, "with", "train.epochs=1"]) == 2
    assert "only settings of the network" in capsys.readouterr().err


STUDY = """from harness.study import Column, Row, Study

ROWS = [Row({"Method": name}, {"method.name": name}) for name in ("spos", "fsnas")]
study = Study("mine", "Mine", ROWS, [Column("τ", "kendall_tau")])
"""


def test_a_study_starts_from_the_weights_of_a_stored_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of no epochs predicts what the run does whose weights it takes, and is another trial."""
    with user_folder(tmp_path, {"studies/mine.py": STUDY}):
        run = ["run", "mine", "--preset", "tiny", "--seeds", "1", "--no-references", "--jobs", "1"]
        assert main(run) == 0
        store = DirectoryStore(Path("runs"))
        trained = {one.trial["config"]["method"]["name"]: one for one in store.runs()}
        known = {one.id for one in trained.values()}
        for name, supernets in (("spos", 1), ("fsnas", 5)):
            first = trained[name]
            warm = ["with", f"train.weights={first.id[:20]}", "train.epochs=0"]
            assert main([*run[:-2], "--only", f"method.name={name}", *warm]) == 0
            (again,) = (one for one in store.runs() if one.id not in known)
            known.add(again.id)
            checksum = hashlib.sha256(store.read(first, "weights.pt")).hexdigest()
            assert again.trial["config"]["train"]["weights"] == f"run-{checksum[:12]}" and again.key != first.key
            ranking = first.trial["config"]["rank"]
            assert store.predictions(again, ranking) == store.predictions(first, ranking)
            assert len(stored(f"run-{checksum[:12]}")[1]) == supernets
            capsys.readouterr()
            assert main(["report", "mine", "--preset", "tiny", "--seeds", "1", *warm]) == 0
            assert "1 of 1" not in capsys.readouterr().err
            inputs = ["--image-size", "8", "--image-channels", "1", "--classes", "10"]
            file = f"runs/{first.id}/weights.pt"
            sizes = [f"network.{key}={value}" for key, value in first.trial["config"]["network"].items()]
            assert main(["weights", "import", file, "--space", "nasbench201", *inputs, "with", *sizes]) == 0
        assert main([*run, "with", "train.weights=12"]) == 2
        assert "12" in capsys.readouterr().err
