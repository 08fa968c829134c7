"""`harness benchmark` on the command line: what it shows, and how it refuses."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.cli import main
from harness.components.preset import get_preset
from harness.components.registries import BENCHMARKS, DATASETS, SPACES
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.training.stages.standalone import StandaloneRecipe
from harness.training.trial import run_trial
from harness.truth import build as building
from harness.truth.build import BuildPlan, command, make_piece, pieces
from harness.truth.table import Table, TableBenchmark
from tests.official_files import malicious, rows, write_csv
from tests.toy import user_folder


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one message of a command that must exit with 2."""
    assert main(["benchmark", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ")
    return lines[0]


@pytest.mark.parametrize("action", ["info", "verify"])
def test_unknown_benchmarks_and_files_that_are_no_tables(
    action: str, toy_project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = refused(capsys, action, "digit")
    assert "no benchmark is named 'digit'; did you mean 'digits'? " in message
    assert "Known: digits, digits-polar, nasbench201, toy" in message
    assert "none.npz: no such table" in refused(capsys, action, "none.npz")
    (tmp_path / "text.npz").write_text("94.37")
    assert f"{tmp_path / 'text.npz'}: not a readable benchmark table" in refused(
        capsys, action, str(tmp_path / "text.npz")
    )
    np.savez(tmp_path / "other.npz", images=np.zeros(3))
    assert "other.npz: not a readable benchmark table" in refused(capsys, action, str(tmp_path / "other.npz"))


@pytest.mark.parametrize("action", ["info", "verify"])
def test_a_table_of_an_unknown_space_or_with_a_hole(
    action: str, toy_project: Path, tmp_path: Path, toy_table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = Table(toy_table.classes, toy_table.valid, toy_table.test, {**toy_table.provenance, "space": "toys"})
    foreign.write(tmp_path / "foreign.npz")
    assert "no space is named 'toys'; did you mean 'toy'?" in refused(capsys, action, str(tmp_path / "foreign.npz"))
    Table(toy_table.classes[1:], toy_table.valid[1:], toy_table.test[1:], toy_table.provenance).write(
        tmp_path / "hole.npz"
    )
    message = refused(capsys, action, str(tmp_path / "hole.npz"))
    assert "hole.npz" in message and "(0, 0, 0) is missing" in message


def test_benchmarks_that_say_nothing_of_themselves(toy_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    BENCHMARKS.register("foreign")(lambda: object())
    try:
        assert "benchmark 'foreign' was neither computed nor imported" in refused(capsys, "info", "foreign")
        assert "benchmark 'foreign' was not computed by this harness" in refused(capsys, "verify", "foreign")
    finally:
        del BENCHMARKS.entries["foreign"]


def test_an_import_becomes_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HARNESS_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("HARNESS_BENCHMARKS", raising=False)
    table = rows()
    source = write_csv(tmp_path / "accuracies.csv.gz", table)
    kept = tmp_path / "data" / "benchmarks" / "nasbench201.npz"
    assert f"{kept} does not exist; import it with `harness benchmark import FILE`" in refused(
        capsys, "info", "nasbench201"
    )
    assert main(["benchmark", "import", str(source)]) == 0
    assert f"wrote {kept}" in capsys.readouterr().out
    assert main(["benchmark", "info", "nasbench201"]) == 0
    shown = capsys.readouterr().out
    assert "accuracies.csv.gz (csv)" in shown and hashlib.sha256(source.read_bytes()).hexdigest() in shown
    assert "3.00 to 81.12 %" in shown and "400 non-empty bins of 400 (equal width)" in shown
    assert shown.count("parameters' τ") == 3 and table[-1]["arch"] in shown
    assert "was not computed by this harness" in refused(capsys, "verify", "nasbench201")
    # A table that is refused leaves the one that is there alone.
    before = kept.read_bytes()
    message = refused(capsys, "import", str(write_csv(tmp_path / "short.csv", table[1:])))
    assert "short.csv: holds 15,624 architectures" in message and kept.read_bytes() == before
    # A table's file can be shown, too, and one that cannot be written is said.
    assert main(["benchmark", "import", str(source), "--out", str(tmp_path / "other.npz")]) == 0
    assert (tmp_path / "other.npz").read_bytes() == before
    capsys.readouterr()
    assert main(["benchmark", "info", str(tmp_path / "other.npz")]) == 0
    capsys.readouterr()
    assert "cannot be written" in refused(capsys, "import", str(source), "--out", str(source / "x.npz"))


def test_a_malicious_file_is_refused_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    victim, file = tmp_path / "victim", tmp_path / "NAS-Bench-201-v1_1-096897.pth"
    torch.save(malicious(victim, {"meta_archs": []}), file)
    message = refused(capsys, "import", str(file), "--out", str(tmp_path / "out.npz"))
    assert f"{file}: this pickle refers to posix.system" in message and "use --trust" in message
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name]


def test_a_table_made_on_other_images_is_not_verified(toy_project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "verify", "toy", "--jobs", "1"]) == 2
    assert "error: the table was made on other images" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--space", "toys"], "no space is named 'toys'; did you mean 'toy'?"),
        (["--data", "digit"], "no data set is named 'digit'; did you mean 'digits'?"),
        (["--epochs", "0"], "epochs must be at least 1, not 0"),
        (["--learning-rate", "0"], "learning_rate must be above 0"),
    ],
)
def test_a_build_that_cannot_be(
    arguments: list[str], message: str, toy_project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["--space", "toy", "--data", "toy", "--out", str(tmp_path / "new.npz")]
    assert main(["benchmark", "build", *base, *arguments]) == 2
    assert f"error: {message}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "arguments", [["build", "--seeds", "0"], ["build", "--jobs", "0"], ["verify", "--sample", "x"]]
)
def test_options_out_of_range(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", *arguments]) == 2
    assert f"Invalid value for '{arguments[1]}'" in capsys.readouterr().err


CLASSES = [0, 0, 0, 0, *range(4, 12)]
"""The class of every architecture of the toy space."""


def test_info_says_how_the_table_was_made_and_what_it_is_worth(
    toy_project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["benchmark", "info", "toy"]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["space"] == "toy (12 architectures, 9 classes)"
    assert shown["seeds"] == "2 per class, from seed 0"
    assert shown["selected"] == "9 non-empty bins of 400 (equal width), of 12 architectures"
    assert "3.33 to 76.67 %, span 73.33 points" in shown["test"]
    assert "1.000 on the selected" in shown["split-half"]
    assert shown["parameters'"] == "τ   0.707 on the selected, 0.828 on all"
    assert "1.000 on the selected" in shown["ceiling"]


def test_info_and_verify_of_an_unfinished_build(
    toy_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(building, "CLASSES_A_PIECE", 2)
    plan = BuildPlan.make("toy", "toy", StandaloneRecipe(width=2, depth=1, epochs=1, batch_size=20), seeds=2, seed=3)
    assert "holds no piece of a table" in refused(capsys, "info", str(tmp_path))
    assert "holds no piece of a table" in refused(capsys, "verify", str(tmp_path))
    planned = pieces(plan, SPACES.get("toy")())
    for piece in (0, 2):
        make_piece(plan.json(), piece, planned[piece], str(tmp_path))
    assert main(["benchmark", "info", str(tmp_path)]) == 0
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["pieces"] == str(tmp_path) and shown["done"].startswith("4 of 9 classes, ")
    assert shown["left"].startswith("5 classes, about 0.0 hours of one core")
    assert shown["space"] == "toy (12 architectures, 4 classes)"
    known = sum(number in planned[0] + planned[2] for number in CLASSES)
    assert shown["selected"].endswith(f", of {known} architectures")
    assert {"parameters'", "split-half", "ceiling", "signal"} <= set(shown)
    assert main(["benchmark", "verify", str(tmp_path), "--jobs", "1"]) == 0
    assert "retrained 4 rows: 4 exactly equal" in capsys.readouterr().out
    # Pieces of an earlier version do not say how long they took.
    for path in tmp_path.glob("piece-*.json"):
        document = json.loads(path.read_text())
        assert document.pop("seconds") >= 0
        path.write_text(json.dumps(document))
    assert main(["benchmark", "info", str(tmp_path)]) == 0
    assert "4 of 9 classes\n" in capsys.readouterr().out
    (tmp_path / "piece-00001.json").write_text("{")
    assert "piece-00001.json: not a piece of a table" in refused(capsys, "info", str(tmp_path))


def test_build_assembles_finished_pieces_and_refuses_those_of_another_plan(
    toy_project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pieces are made here; the command finds them all and needs no workers."""
    plan = BuildPlan.make("toy", "toy", StandaloneRecipe(width=2, depth=1, epochs=1, batch_size=20), seeds=2, seed=3)
    out = tmp_path / "built.npz"
    work = out.with_suffix(".pieces")
    work.mkdir()
    for piece, numbers in pieces(plan, SPACES.get("toy")()).items():
        make_piece(plan.json(), piece, numbers, str(work))
    arguments = [*command(plan).split()[3:], "--out", str(out)]
    assert arguments[:2] == ["benchmark", "build"]
    assert main(arguments) == 0
    assert f"wrote {out}" in capsys.readouterr().out.replace("\n", " ")
    table = Table.read(out)
    assert table.seeds == 2 and table.provenance["data_checksum"] == DATASETS.get("toy")().checksum()
    assert main([*arguments, "--epochs", "2"]) == 2
    assert "piece-00000.json: belongs to another plan" in capsys.readouterr().err
    assert Table.read(out).checksum() == table.checksum()


PLAIN = """from dataclasses import dataclass

from torch import nn

from harness.components.registries import SPACES
from harness.components.space import Space


@dataclass(frozen=True)
class PlainNetwork:
    channels: int = 2


@SPACES.register("plain")
class Plain(Space):
    name = "plain"
    choices = (2, 2)
    complexity_counts = ("parameters",)
    Network = PlainNetwork

    def parse(self, text):
        return self.check(tuple(map(int, text)))

    def format(self, architecture):
        return "".join(map(str, self.check(architecture)))

    def complexity(self, architecture, count="parameters"):
        return 1 + sum(self.check(architecture))

    def supernet(self, settings):
        return Chosen(settings)

    def standalone(self, architecture, settings):
        assert settings.copies == 1
        return Chosen(settings, architecture)


class Chosen(nn.Module):
    def __init__(self, settings, architecture=None):
        super().__init__()
        self.architecture = architecture
        self.layers = nn.ModuleList(nn.ModuleList(nn.Conv2d(i, settings.channels, k, padding=k // 2) for k in (1, 3))
                                    for i in (settings.image_channels, settings.channels))
        self.classifier = nn.Linear(settings.channels, settings.classes)

    def forward(self, images, architecture=None):
        for layer, choice in zip(self.layers, architecture or self.architecture):
            images = layer[choice](images).relu()
        return self.classifier(images.mean((2, 3)))
"""
IN_PLAIN = """from harness.study import Column, Row, Study

rows = [Row({"Method": "SPOS"}, {"method": "spos", "dataset": "few"})]
study = Study("in_plain", "In a space of one's own", rows, [Column("τ", "kendall_tau")], space="plain")
"""
FEW = """from harness.components.dataset import DataSet
from harness.components.registries import DATASETS


@DATASETS.register("few")
def few():
    '''A few of the digits.'''
    all_ = DATASETS.get("digits")()
    return DataSet("few", 10, all_.train.head(40), all_.valid.head(50), all_.test.head(60), all_.mean, all_.std)
"""


def test_a_table_of_any_space_is_built_verified_and_judges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The space does not stack networks, and has settings of its own; its data set is in a folder of its own."""
    files = {"spaces/plain.py": PLAIN, "datasets/few.py": FEW, "studies/in_plain.py": IN_PLAIN}
    with user_folder(tmp_path, files):
        build = ["benchmark", "build", "--space", "plain", "--data", "few", "--out", "plain.npz", "--jobs", "1"]
        assert main([*build, "--network", "chanels=3"]) == 2
        assert "no configuration key 'network.chanels'; did you mean 'channels'?" in capsys.readouterr().err
        assert main([*build, "--seeds", "3", "--network", "channels=3", "--batch-size", "20"]) == 0
        table = Table.read(Path("plain.npz"))
        assert table.seeds == 3 and len(table.classes) == 4
        assert len({tuple(counts) for counts in table.test.T.tolist()}) == 3  # seeds are networks of their own
        capsys.readouterr()
        assert main(["benchmark", "verify", "plain.npz", "--jobs", "1"]) == 0
        assert "retrained 4 rows: 4 exactly equal" in capsys.readouterr().out
        assert main(["benchmark", "info", "plain.npz"]) == 0
        shown = capsys.readouterr().out
        assert "2 epochs, channels 3, batch 20" in shown and "--network channels=3" in shown
        asked = {"benchmark": "plain.npz", "network.channels": 3, "train.epochs": 1}
        (request,) = expand(find_studies("in_plain")[0], get_preset("tiny", "plain"), 1, asked)
        result = run_trial(request.trial.config).result
        assert result["selected"] >= 2 and result["top1_accuracy"] in TableBenchmark(
            "plain", SPACES.get("plain")(), table
        ).accuracies("few")


def test_an_error_in_the_spaces_own_code_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = PLAIN.replace("self.classifier(images.mean((2, 3)))", "self.classifier(images)")
    with user_folder(tmp_path, {"spaces/plain.py": wrong, "datasets/few.py": FEW}):
        build = ["benchmark", "build", "--space", "plain", "--data", "few", "--out", "plain.npz", "--jobs", "1"]
        assert main(build) == 1
    line = len(wrong.splitlines())
    (message,) = capsys.readouterr().err.strip().splitlines()
    assert message.startswith("error: class ") and f"spaces/plain.py:{line}: RuntimeError: " in message


def test_one_seed_has_no_reliability(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with user_folder(tmp_path, {"spaces/plain.py": PLAIN, "datasets/few.py": FEW}):
        build = ["benchmark", "build", "--space", "plain", "--data", "few", "--out", "plain.npz", "--jobs", "1"]
        assert main([*build, "--seeds", "1", "--epochs", "1"]) == 0
        assert main(["benchmark", "info", "plain.npz"]) == 0
        shown = capsys.readouterr().out
        assert "nan" not in shown and "unknown: the table has one seed per class" in shown
