"""`harness explain`: presets with every point of the released code, keys, components and metrics from the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import main
from harness.components.preset import get_preset, presets_of
from harness.components.registries import REGISTRIES
from harness.study.explanation import explained, keys
from tests.toy import user_folder

OFFICIAL = get_preset("official")
POINTS = OFFICIAL.differences

PRESET = """from harness.components.preset import Preset, register

register(Preset("tiny", "mine", seeds=1, datasets=("digits",), space="elsewhere", settings={"train.epochs": 7}))
"""
STEPS = """from dataclasses import dataclass
from harness.components.registries import SCHEDULES
from harness.components.schedule import Schedule


@SCHEDULES.register("steps")
@dataclass(frozen=True)
class Steps(Schedule):
    '''Falls at given steps.

    Each time by the same factor.
    '''

    factor: float = 0.1
    '''The factor of each fall,
    over two lines.'''
    at: tuple[float, ...] = (0.5, 0.75)
    unit: str = "epochs"

    def __post_init__(self):
        if not 0 < self.factor < 1:
            raise ValueError(f"factor must be above 0 and below 1, not {self.factor}")
        if self.unit not in ("epochs", "steps"):
            raise ValueError(f"unit is {self.unit!r}; allowed: epochs, steps")

    def bind(self, space):
        return lambda path, progress: self.factor ** sum(progress >= step for step in self.at)
"""


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["explain", *words]) == 0
    return capsys.readouterr().out


def said(capsys: pytest.CaptureFixture[str], word: str) -> str:
    """The message for a name that is not known."""
    assert main(["explain", word]) == 2
    return capsys.readouterr().err


def test_official_is_explained_point_by_point(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "official")
    assert text.startswith(f"official: {OFFICIAL.summary}\n")
    words = " ".join(text.split())
    for point in POINTS:
        assert f"\n{point.name}\n" in text
        assert point.other in words and point.why in words
        for settings in (point.settings, *point.by_method.values()):
            for key in settings:
                assert f"{key}=" in words
    different = sum(point.own != "the same" for point in POINTS)
    assert different > 11 and f"It differs from `paper` in {different} ways" in text
    for change in (
        "rank.selection=equal-width (paper: equal-count)",
        "rank.selection_on=imagenet16-120 (paper: null)",
        "optimiser.clip=null (paper: 5.0) for fairnas",
        "schedule.name=constant (paper: cosine) for fairnas",
        "method.split=0 (paper: null) for fsnas",
        "method.first_update=weights (paper: architecture) for darts",
        "supernets trained on cifar10, rank.truth each data set",
        "rank.top1=false (paper: true)",
    ):
        assert change in words


def test_the_settings_of_every_other_preset(capsys: pytest.CaptureFixture[str]) -> None:
    for name, preset in presets_of().items():
        if preset.differences:
            continue
        text = shown(capsys, name)
        assert preset.summary in text and ", ".join(preset.datasets) in text
        assert all(f"\n  {key}=" in text for key in preset.settings)
        assert ("equal passes" in text) == preset.equal_passes
    paper = shown(capsys, "paper")
    assert "  train.epochs=250\n" in paper and "for fairnas, instead\n  train.epochs=200\n" in paper
    assert "  rank.candidates=null\n" in paper


def test_the_presets_of_each_space_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with user_folder(tmp_path, {"presets/mine.py": PRESET}):
        both = shown(capsys, "tiny")
        assert "(preset of elsewhere)" in both and "(preset of nasbench201)" in both
        assert "train.epochs=7" in both and "train.epochs=5" in both
        assert shown(capsys, "elsewhere/tiny") == shown(capsys, "tiny", "--space", "elsewhere")
        assert main(["explain", "demo", "--space", "elsewhere"]) == 2
        assert "no preset of elsewhere is named 'demo'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("train.batch_size", ["Images per step.", "whole number", "default 64", "allowed at least 1", "tiny 512"]),
        ("retrain.which", ["counted from 0, the best", "default 0", "allowed not negative"]),
        ("rank.bins", ["default 400", "allowed at least 2", "presets nasbench201/official 400"]),
        ("rank.selection", ["allowed equal-width, equal-count"]),
        ("rank.top_share", ["number or null", "allowed above 0 and at most 1, or null"]),
        ("schedule.gamma_prime", ["(learning-rate schedule calr)", "γ_max = γ′", "default 4.0", "allowed above 0"]),
        ("gamma_prime", ["schedule.gamma_prime (", "retrain.schedule.gamma_prime ("]),
        ("method", ["method.name", "default spos", "fairnas, fsnas, ", "method.split (fsnas)"]),
        ("search.name", ["default null", "best-of-n-random, evolution, exhaustive, random"]),
        ("train.order.times", ["(order of samples repeated)", "allowed at least 1"]),
        ("train.augment", ["names (augmentation)", "default []", "mixup"]),
        ("network.width", ["(space nasbench201)", "Channels of the first stage.", "default 16"]),
        ("observe", ["observe (section", "observe.spread", "observe.own"]),
        ("dataset", ["default digits", "cifar10-16"]),
        ("seed", ["default 0"]),
        ("fairnas", ["fairnas (method)", "Strict fairness", "options none", "with method.name=fairnas"]),
        ("cosine", ["cosine (learning-rate schedule)", "schedule.final", "in [0, 1]"]),
        ("random", ["random (cluster rule)", "random (search)", "clusters.clusters", "search.keep"]),
        ("digits", ["digits (data set)", "digits (benchmark)"]),
        ("nasbench201", ["(space)", "size 15,625 architectures", "counts parameters, ", "network.depth", "(importer)"]),
        ("mixup", ["with \"train.augment=['mixup']\"", "alpha", "from 1e-06 to 100"]),
        ("kendall_tau", ["(metric)", 'Column("…", "kendall_tau")', "ties count", "observe.kendall_tau_every"]),
        ("complexity_bias", ["needs rank.top_share"]),
        ("top1_accuracy", ["needs rank.top1", "in %"]),
        ("stage_seconds.train", ["seconds of each stage"]),
        ("valid_loss_small", ["(curve)", "observe.subnets_every"]),
    ],
)
def test_keys_components_and_metrics(name: str, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(shown(capsys, name).split())
    for line in lines:
        assert line in text


def test_every_key_and_every_option_of_ours_has_a_meaning() -> None:
    assert len(keys()) > 60
    assert [key for key, ones in keys().items() if not all(one.text for one in ones)] == []
    for kind, registry in REGISTRIES.items():
        for name in registry.names() if kind != "presets" else ():
            for one in explained(name):
                assert one.text and all(option.text for option in one.options), name


def test_a_users_component_is_explained_from_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with user_folder(tmp_path, {"methods/steps.py": STEPS, "methods/x.py": "import no_such_library\n"}):
        text = shown(capsys, "steps")
        assert text.startswith("steps (learning-rate schedule)\n  Falls at given steps.\n  Each time by the same ")
        words = " ".join(text.split())
        assert "file methods/steps.py:6" in words and "with schedule.name=steps" in words
        assert "schedule.factor The factor of each fall, over two lines. type number default 0.1" in words
        assert "allowed above 0 and below 1" in words
        assert "schedule.at type list default [0.5, 0.75]" in words
        assert "schedule.unit type text default epochs allowed epochs, steps" in words
        assert "The factor of each fall" in shown(capsys, "schedule.factor")
        assert "'steps'" in said(capsys, "step")
        assert "x.py:1 does not import: ModuleNotFoundError" in said(capsys, "x")


def test_an_unknown_name_is_compared_with_everything(capsys: pytest.CaptureFixture[str]) -> None:
    for typed, meant in {
        "offical": "official",
        "kendal_tau": "kendall_tau",
        "train.batchsize": "train.batch_size",
        "fairnass": "fairnas",
        "cosin": "cosine",
        "gamma_prim": "gamma_prime",
        "optimizer": "optimiser",
        "Cifar10": "cifar10",
    }.items():
        message = said(capsys, typed)
        assert message.startswith(f"error: nothing is named {typed!r}; did you mean {meant!r}"), message
        assert "`harness explain` lists" in message
    assert said(capsys, "zzzz").startswith("error: nothing is named 'zzzz'. `harness explain`")
