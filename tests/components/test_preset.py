"""Presets: registered under space and name, by ours and by the user's files, and one default for what nobody says."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli import main
from harness.components import discovery
from harness.components.preset import default_preset, get_preset, presets_of
from harness.errors import ComponentWarning, NameCollision, UnknownName
from harness.study.configuration import RunConfig

OWN = """from harness.components.preset import Preset, register

register(Preset("quick", "one epoch", seeds=1, datasets=("digits",), space="{space}", settings={{"train.epochs": 1}}))
"""
STUDY = """from harness.study import Column, Row, Study

study = Study("{name}", "One row", [Row({{"Method": "m"}}, {{"method": "spos"}})], [Column("τ", "kendall_tau")]{space})
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder with a preset of its own for our space, and two studies."""
    (tmp_path / "studies" / "presets").mkdir(parents=True)
    (tmp_path / "studies" / "presets" / "mine.py").write_text(OWN.format(space="nasbench201"))
    (tmp_path / "studies" / "ours.py").write_text(STUDY.format(name="ours", space=""))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARNESS_STORE", raising=False)
    return tmp_path


def test_a_users_preset_is_beside_ours_and_a_scale_of_every_command(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with discovery.fresh():
        assert {"tiny", "demo", "paper", "quick"} <= presets_of("nasbench201").keys()
        assert main(["plan", "ours", "--preset", "quick"]) == 0
        assert "1 trials under preset quick" in capsys.readouterr().out
        assert main(["explain", "quick"]) == 0
        assert "train.epochs=1" in capsys.readouterr().out
    with discovery.fresh(), pytest.MonkeyPatch.context() as patch:
        (folder / "elsewhere").mkdir()
        patch.chdir(folder / "elsewhere")
        assert "quick" not in presets_of("nasbench201")


def test_a_preset_in_the_folder_presets_is_one_for_any_space(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "presets").mkdir()
    (folder / "presets" / "slow.py").write_text(OWN.format(space="elsewhere").replace("quick", "slow"))
    (folder / "studies" / "theirs.py").write_text(STUDY.format(name="theirs", space=', space="elsewhere"'))
    with discovery.fresh():
        assert presets_of("elsewhere").keys() == {"slow"} and "slow" not in presets_of("nasbench201")
        assert main(["plan", "ours", "--preset", "slwo"]) == 2
        assert "no preset is named 'slwo'; did you mean 'slow'? Known: demo, official, paper" in capsys.readouterr().err
    for command in (["run"], ["plan"], ["status"], ["report"], ["store", "export"]):
        with discovery.fresh():
            assert main([*command, "--help"]) == 0
            shown = " ".join(capsys.readouterr().out.split())
            assert "demo, official, paper, quick, slow, small, tiny" in shown, command


def test_the_help_names_presets_without_loading_spaces(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "spaces").mkdir()
    (folder / "spaces" / "heavy.py").write_text("raise AssertionError('loaded')")
    (folder / "presets").mkdir()
    (folder / "presets" / "broken.py").write_text("1 / 0")
    with discovery.fresh():
        assert main(["run", "--help"]) == 0
        said = capsys.readouterr()
        assert "demo, official, paper, quick" in " ".join(said.out.split()) and not said.err


def test_a_preset_without_a_space_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "presets").mkdir()
    (folder / "presets" / "lost.py").write_text(OWN.format(space="").replace("quick", "lost"))
    with discovery.fresh():
        assert main(["plan", "ours", "--preset", "lost"]) == 2
    said = capsys.readouterr().err
    assert said.count("lost.py:3 does not import: InvalidConfiguration: preset 'lost' names no space") == 2
    assert "error: no preset is named 'lost'" in said


def test_two_presets_of_one_space_and_name_are_an_error_that_names_both_files(folder: Path) -> None:
    (folder / "studies" / "presets" / "other.py").write_text(OWN.format(space="nasbench201"))
    with discovery.fresh(), pytest.warns(ComponentWarning, match="other.py is left out"):
        assert "tiny" in presets_of("nasbench201") and "quick" not in presets_of("nasbench201")
        with pytest.raises(NameCollision, match=r"mine\.py:3 and .*other\.py:3"):
            get_preset("quick", "nasbench201")


def test_a_study_whose_space_lacks_the_preset_is_left_out_with_a_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "studies" / "presets" / "theirs.py").write_text(OWN.format(space="elsewhere"))
    (folder / "studies" / "theirs.py").write_text(STUDY.format(name="theirs", space=', space="elsewhere"'))
    with discovery.fresh():
        assert main(["plan", "ours", "theirs", "--preset", "tiny"]) == 0
        said = capsys.readouterr()
        assert "left out: theirs; elsewhere has no preset 'tiny', only quick" in said.err
        assert "theirs" not in said.out and "ours: One row" in said.out
        assert main(["plan", "theirs", "--preset", "tiny"]) == 2
        assert "no preset of elsewhere is named 'tiny'" in capsys.readouterr().err


def test_a_space_without_presets_has_those_of_the_default_space() -> None:
    assert presets_of("a user's own") == presets_of() == presets_of(default_preset().space)
    assert get_preset("tiny", "a user's own").datasets == ("digits",)
    with pytest.raises(UnknownName, match="did you mean 'demo'"):
        get_preset("demmo")


def test_a_configuration_begins_as_the_default_preset_says() -> None:
    settings = default_preset().settings
    config = RunConfig()
    assert (config.space, config.dataset, config.benchmark) == tuple(
        settings[key] for key in ("space", "dataset", "benchmark")
    )
    for key in ("method", "schedule", "clusters", "sampler"):
        assert getattr(config, key).name == settings[f"{key}.name"]
    assert RunConfig.from_json({"retrain": {}}).retrain.schedule.name == settings["schedule.name"]  # type: ignore[union-attr]
