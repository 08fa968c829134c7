"""`harness explain`: every point of the released code's preset, and the settings of the others."""

from __future__ import annotations

import pytest

from harness.cli import main
from harness.components.preset import get_preset, presets_of

OFFICIAL = get_preset("official")
POINTS = OFFICIAL.differences


def shown(capsys: pytest.CaptureFixture[str], preset: str) -> str:
    assert main(["explain", preset]) == 0
    return capsys.readouterr().out


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
    assert "It differs from `paper` in 10 ways" in text
    for change in (
        "rank.selection=equal-width (paper: equal-count)",
        "rank.selection_on=imagenet16-120 (paper: null)",
        "optimiser.clip=null (paper: 5.0) for fairnas",
        "schedule.name=constant (paper: cosine) for fairnas",
        "method.split=0 (paper: null) for fsnas",
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


def test_an_unknown_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "offical"]) == 2
    assert "no preset is named 'offical'; did you mean 'official'?" in capsys.readouterr().err
