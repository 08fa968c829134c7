"""Measured latency as a count: tables by layer, named by their content, and what is refused."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from harness.components.preset import get_preset
from harness.components.registries import SPACES
from harness.components.space import network_settings
from harness.data.latency import LatencyTable, counts
from harness.errors import DataError, InvalidConfiguration
from harness.study.configuration import RunConfig
from harness.study.layout import Column, Row
from harness.study.study import Study
from harness.study.trial import Trial
from harness.training.trial import run_trial
from harness.work.plan import make_plan
from tests.toy import user_folder

DIGITS = {"image_size": 8, "image_channels": 1, "classes": 10}
MEASURE = "benchmark latency mobilenet-reduced --image-size 8 --image-channels 1 --classes 10 --repeats 1"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with one measured table, of networks for the digits."""
    with user_folder(tmp_path_factory.mktemp("latency")) as folder:
        assert main(shlex.split(MEASURE)) == 0
        yield folder


def space_at(**network: Any) -> Any:
    space: Any = SPACES.get("mobilenet-reduced")()
    return space.at(network_settings(space.Network(**network), **DIGITS))


def stored(folder: Path) -> tuple[Path, LatencyTable]:
    (file,) = (folder / "data" / "latency").glob("mobilenet-reduced-latency-*.json")
    return file, LatencyTable.read(file)


def test_a_table_holds_what_was_measured_on_what(project: Path) -> None:
    _, table = stored(project)
    assert set(table.measured) == {"device", "threads", "torch", "batch", "repeats"} and table.measured["threads"] == 1
    assert table.network == DIGITS | {"width_multiplier": 1.0, "squeeze": 0.0}
    assert tuple(map(len, table.layers)) == SPACES.get("mobilenet-reduced").choices
    assert table.layers[1][2] == 0 and all(own[0] > 0 for own in table.layers)  # a skip takes no time


def test_latency_is_a_sum_of_lookups_in_microseconds(project: Path) -> None:
    _, table = stored(project)
    space, one = space_at(), (0, 2, 1, 4, 2, 3, 0, 4)
    assert space.complexity_counts == ("parameters", "flops", table.count)
    expected = table.shared + sum(own[choice] for own, choice in zip(table.layers, one, strict=True))
    assert space.complexity(one, table.count) == space.complexity(one, "latency") == expected
    least, smallest, greatest, largest = space.extremes(table.count)
    assert least == space.complexity(smallest, table.count) <= expected <= greatest
    tracked = space_at(norm_momentum=0.01)  # does not matter
    assert tracked.complexity(one, table.count) == expected


def test_a_missing_table_is_a_message_with_the_command_that_makes_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wider = space_at(width_multiplier=0.5, squeeze=0.25)
    with pytest.raises(DataError, match="latency of mobilenet-reduced is not measured here") as error:
        wider.complexity((0,) * 8, "latency")
    command = str(error.value).partition("measure it with: python -m harness ")[2]
    assert main(shlex.split(command)) == 0
    assert "wrote" in capsys.readouterr().out
    again = space_at(width_multiplier=0.5, squeeze=0.25)
    assert again.complexity((0,) * 8, "latency") > 0
    (made,) = set(again.complexity_counts) - {"parameters", "flops"} - {stored_count(project, 1.0)}
    with pytest.raises(DataError, match=r"measured with width_multiplier 0\.5, squeeze 0\.25, not with width_mult"):
        space_at().complexity((0,) * 8, made)
    (project / "data" / "latency" / f"mobilenet-reduced-{made}.json").unlink()


def stored_count(folder: Path, width: float) -> str:
    tables = map(LatencyTable.read, (folder / "data" / "latency").glob("*.json"))
    return next(table.count for table in tables if table.network["width_multiplier"] == width)


def test_configurations_name_the_table_so_that_trials_know_what_they_rest_on(project: Path) -> None:
    _, table = stored(project)
    other = replace(table, measured={**table.measured, "device": "another"})
    assert other.count != table.count
    common = {"space": "mobilenet-reduced", "benchmark": None, "train": {"epochs": 1, "batch_size": 512}}

    def asked(count: str) -> RunConfig:
        calr = {"name": "calr", "complexity": count}
        return RunConfig.from_json(common | {"schedule": calr, "rank": {"images": 16, "candidates": 2}})

    assert Trial(asked(table.count)).key != Trial(asked(other.count)).key
    assert run_trial(asked(table.count)).result["diverged"] is None
    for count in (other.count, "latency"):  # not here; and a name that says nothing of the machine
        with pytest.raises(InvalidConfiguration, match=rf"schedule\.complexity is '{count}'.*benchmark latency"):
            run_trial(asked(count))


def test_planning_counts_the_trials_own_networks(project: Path) -> None:
    """The table fits the digits' size, not the published one."""
    _, table = stored(project)

    def planned(count: str) -> int:
        settings = {"benchmark": None, "schedule.name": "calr", "schedule.complexity": count}
        rows = [Row({"Method": "SPOS"}, settings)]
        study = Study("one", "One", rows, [Column("Top-1", "top1_accuracy")], space="mobilenet-reduced")
        return len(make_plan([study], get_preset("tiny", "mobilenet-reduced"), [], seeds=1).work)

    assert planned(table.count) == 1
    with pytest.raises(InvalidConfiguration, match="schedule.complexity is 'latency-0'; mobilenet-reduced allows"):
        planned("latency-0")


def test_a_search_keeps_a_limit_of_latency(project: Path) -> None:
    _, table = stored(project)
    space = space_at()
    drawn = sorted(space.complexity(space.sample(random.Random(seed)), table.count) for seed in range(50))
    limits = {table.count: [None, drawn[25]]}
    search = {"name": "best-of-n-random", "samples": 3, "limits": limits}
    common = {"space": "mobilenet-reduced", "benchmark": None, "train": {"epochs": 1, "batch_size": 512}}
    result = run_trial(RunConfig.from_json(common | {"search": search, "rank": {"images": 16, "candidates": 2}})).result
    (found,) = result["found"]
    assert space.complexity(tuple(found["architecture"]), table.count) <= drawn[25]


def test_what_is_refused(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "latency", "nasbench201"]) == 2
    assert "the latency of nasbench201 cannot be measured" in capsys.readouterr().err
    assert main([*shlex.split(MEASURE), "with", "train.epochs=3"]) == 2
    assert "train.epochs: only settings of the network" in capsys.readouterr().err
    file, _ = stored(project)
    changed = json.loads(file.read_text())
    changed["shared"] += 1
    (tmp_path / file.name).write_text(json.dumps(changed))
    with pytest.raises(DataError, match="the content is that of latency-"):
        LatencyTable.read(tmp_path / file.name)
    (tmp_path / file.name).write_text("[]")
    with pytest.raises(DataError, match="not a readable table of latencies"):
        LatencyTable.read(tmp_path / file.name)


def test_the_folder_is_a_variable(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_LATENCY", str(tmp_path))
    assert counts("mobilenet-reduced") == [] and space_at().complexity_counts == ("parameters", "flops")
