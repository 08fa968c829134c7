"""`harness plan` and `status`, and the mistakes that `run` and `plan` refuse, in process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cli import main
from harness.components import discovery
from harness.components.preset import get_preset
from harness.environment import PROJECT
from harness.study.catalogue import find_studies
from harness.study.expansion import expand
from harness.study.study import Request
from harness.work.calibration import estimate
from harness.work.plan import make_plan
from harness.work.slots import Slots
from tests.stored_runs import store_run
from tests.toy import user_folder

TINY = ["--preset", "tiny", "--seeds", "1"]


MINE = """from harness.study import Column, Row, Study

spos = {"method.name": "spos"}
study = Study(
    name="mine",
    title="All stages",
    rows=[
        Row({"Row": "curve"}, spos, points={"observe.kendall_tau_every": 2}),
        Row({"Row": "found"}, {**spos, "train.epochs": 2, "search.name": "random", "retrain.epochs": 4}),
    ],
    columns=[Column("τ", "kendall_tau")],
)
"""
"""A study that trains, ranks, searches and retrains."""

SLOW = """from harness.components.method import Method
from harness.components.registries import METHODS

@METHODS.register("slow")
class Slow(Method):
    def paths(self, training):
        while True:
            pass
"""
"""A method whose first step never ends."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    with user_folder(tmp_path):
        yield tmp_path


@pytest.fixture
def requests(folder: Path) -> list[Request]:
    """The ablation's, one seed."""
    return expand(find_studies("ablation_calr_ms")[0], get_preset("tiny"), 1)


def test_plan_counts_what_is_there_and_estimates_what_is_left(
    requests: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    store_run(Path("runs"), requests[0], 0.5, cost={"wall_seconds": 100.0})
    store_run(Path("runs"), requests[1], status="failed")
    assert main(["plan", "ablation_calr_ms", *TINY]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ablation_calr_ms: Ablation of CaLR and MS, 12 trials, 1 done"
    assert [line.split()[:2] for line in lines[2:5]] == [["1", "done"], ["10", "waiting"], ["1", "failed"]]
    assert lines[-1].startswith("about 16 min 40 s one by one")


def test_plan_of_nothing_done_and_of_everything_done(
    requests: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    only = ["--only", "method.name=spos,schedule.name=cosine,clusters.name=none"]
    assert main(["plan", "ablation_calr_ms", *TINY, *only]) == 0
    passes, time = capsys.readouterr().out.splitlines()[-2:]
    assert passes == "15 passes over 7,680 images in training"
    advice = "--calibrate trains for a few seconds to make one"
    assert time == f"no estimate: no trial of preset tiny is done yet; {advice}"
    store_run(Path("runs"), requests[0], 0.5)
    assert main(["plan", "ablation_calr_ms", *TINY, *only]) == 0
    assert capsys.readouterr().out.endswith("nothing to run\n")
    assert main(["plan", "--all", *TINY]) == 0
    assert "ablation_calr_ms: Ablation of CaLR and MS, 12 trials, 1 done" in capsys.readouterr().out


def test_plan_of_nothing_done_measures_every_stage_for_a_few_seconds(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("harness.work.calibration.CAP", 300.0)  # a busy machine takes its time
    with user_folder(folder, {"studies/mine.py": MINE}):
        assert main(["plan", "mine", *TINY, "--calibrate", "with", "rank.images=32"]) == 0
    *_, passes, curves, searches, _, _, row, source, path, time = capsys.readouterr().out.splitlines()
    assert passes == "33 passes over 16,896 images in training"
    assert row.split()[:2] == ["mine", "3"] and row.endswith("[1]")
    assert source == "[1] 3 trials: a few seconds of training on this machine"
    assert re.fullmatch(r"critical path: .+, mine/found search seed 0 → mine/found retraining seed 0", path)
    assert re.fullmatch(r"about .+ one by one, .+ with --jobs \d+", time)
    assert curves.startswith("not in the estimate: searches: ")
    assert searches == "not in the estimate: curves that are measured during training"


def test_a_step_that_takes_too_long_is_not_measured(folder: Path) -> None:
    with user_folder(folder, {"methods/slow.py": SLOW, "studies/mine.py": MINE.replace('"spos"', '"slow"')}):
        (study,) = find_studies("mine")
        found = estimate(make_plan([study], "tiny", [], seeds=1).work, Slots.cpu(1), cap=0.5)
    assert not found.by_key
    assert re.search(r"mine/.+ seed 0.*: not measured, a step takes longer than 0.5 s", "\n".join(found.without))


def test_all_that_is_missing_is_said_at_once_with_the_way_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["nb201_main", "--preset", "paper", "--seeds", "1"]
    assert main(["plan", *asked]) == 0
    lines = capsys.readouterr().out.splitlines()
    missing = [line for line in lines if line.startswith("missing: ")]
    ways = ("harness benchmark import FILE", "data check cifar10 --download", "data check cifar100 --download")
    assert len(missing) == 4
    assert all(way in line for way, line in zip((*ways, "image-net.org"), missing, strict=True))
    assert any(re.fullmatch(r"[\d,]+ passes over [\d,]+ images in training", line) for line in lines)
    assert main(["plan", *asked, "--calibrate"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "not measured: cifar10: images or ground truth are missing" in lines
    assert main(["plan", "darts_space", *asked[1:], "--calibrate"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "no estimate: no trial of preset paper is done yet, and none could be measured"
    assert main(["run", *asked]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 4 and all(way in error for way in (*ways, "image-net.org"))


def test_plan_says_what_studies_cost_on_devices_what_sharing_saves_and_by_what_it_is_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["nb201_main", "ablation_calr_ms", "mobilenet_main", "darts_space", "--preset", "paper", "--seeds", "1"]
    assert main(["plan", *asked, "--devices", "4", "--price", "2/h"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line.split() for line in lines if line.endswith("]")}
    # 2 × (0.3 + 1.1 + 1.7) h of training on three data sets, the second of twice, the third of 1.517 times the hours,
    # and 6 × (3.2 + 0.64 + 0.096) h of ranking.
    assert rows["nb201_main"] == ["nb201_main", "18", "51", "h", "37", "min", "103.24", "[2]", "[3]", "[4]"]
    assert rows["darts_space"] == ["darts_space", "4", "unknown", "unknown", "4", "[6]"]
    assert any(re.fullmatch(r"\[2\] 12 trials: modelled, .*RTX 2080 Ti", line) for line in lines)
    sharing, path, time, money = lines[-4:]
    assert sharing.startswith("sharing: 118 trials and ") and " by itself, 100 distinct trials and " in sharing
    assert re.fullmatch(r"critical path: 1,24\d h, mobilenet_main/FSNAS-S .+ → mobilenet_main/FSNAS-S .+", path)
    assert re.fullmatch(r"about [\d,]+ h one by one, [\d,]+ h on 4 devices, without 4 trials of unknown .+", time)
    assert re.fullmatch(r"about [\d,]+\.\d\d at 2 per device and hour, without 4 trials of unknown duration", money)
    hours = [float(re.findall(r"[\d,.]+", line)[0].replace(",", "")) for line in (time, money)]
    assert hours[1] == pytest.approx(2 * hours[0], abs=2)


def test_a_price_is_a_number_per_hour(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "nb201_main", "--price", "2 euros"]) == 2
    assert "'2 euros' is not a price of one device for one hour: give a number, as 2.5/h" in capsys.readouterr().err


def test_plan_of_rankings_alone_gives_no_estimate(requests: list[Request], capsys: pytest.CaptureFixture[str]) -> None:
    for request in requests[:2]:
        store_run(Path("runs"), request, 0.5)
    only = ["--only", "method.name=spos,clusters.name=none"]
    ranked = ["plan", "ablation_calr_ms", *TINY, *only, "with", "rank.images=32"]
    assert main(ranked) == 0
    assert capsys.readouterr().out.endswith("\n2 rankings of stored weights; time not estimated\n")


def test_status_counts_by_study_and_preset_and_names_what_is_damaged(
    requests: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    for request, status in zip(requests, ["done", "failed", "lost", "interrupted", "running"], strict=False):
        store_run(Path("runs"), request, 0.5, status=status)
    damaged = Path("runs") / store_run(Path("runs"), requests[5], 0.5).id / "result.json"
    damaged.write_text(damaged.read_text()[:-20])
    assert main(["status", "ablation_calr_ms", "--seeds", "1"]) == 0
    heading, figures, empty, title, problem = capsys.readouterr().out.splitlines()
    assert " ".join(heading.split()) == "study preset trials done running failed lost interrupted waiting"
    assert " ".join(figures.split()) == "ablation_calr_ms tiny 12 1 1 1 1 1 7"
    assert (empty, title) == ("", "not usable in runs:")
    assert problem.startswith(f"  {damaged}: ")


def test_status_shows_studies_with_runs_and_says_how_many_have_none(
    requests: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    none = re.fullmatch(r"none of (\d+) studies has runs here; --all shows them", line)
    assert none
    fairnas = next(request for request in requests if request.trial.config.method.name == "fairnas")
    store_run(Path("runs"), fairnas, 0.5)
    assert main(["status", "--seeds", "1"]) == 0
    heading, *shown, last = capsys.readouterr().out.splitlines()
    assert heading.split() == ["study", "preset", "trials", "done", "waiting"]
    assert "ablation_calr_ms tiny 12 1 11" in [" ".join(line.split()) for line in shown]  # it does not name its studies
    headings = {"The paper", "Its supplement", "Beyond the paper"}
    assert shown[0] == "The paper" and {line for line in shown if not line.startswith(" ")} <= headings
    hidden = int(none[1]) - sum(line.startswith(" ") for line in shown)
    assert last == f"{hidden} other studies were not run here; --all shows them"
    assert main(["status", "--all", "--seeds", "1"]) == 0
    everything = capsys.readouterr().out.splitlines()
    assert max(map(len, everything)) <= 80
    assert len([line for line in everything if line not in headings]) == 1 + int(none[1])


def test_status_shows_the_studies_and_seeds_that_were_run(capsys: pytest.CaptureFixture[str]) -> None:
    cosine = ["--only", "method.name=spos,schedule.name=cosine,clusters.name=none", "--no-references"]
    assert main(["run", "nb201_main", *TINY, *cosine]) == 0
    capsys.readouterr()
    assert main(["status"]) == 0
    heading, only, last = capsys.readouterr().out.splitlines()
    assert only.split() == ["nb201_main", "tiny", "6", "1", "5"] and len(heading) <= 80
    assert "which share trials with these; --all shows them" in last
    assert main(["run", "nb201_main", *TINY, *cosine, "with", "train.epochs=3"]) == 0
    capsys.readouterr()
    assert main(["status"]) == 0
    assert [line.split()[3:] for line in capsys.readouterr().out.splitlines()[1:3]] == [
        ["1", "5"],
        ["1", "5", "with", "train.epochs=3"],
    ]
    assert main(["report", "--preset", "tiny", "--seeds", "1"]) == 0
    assert capsys.readouterr().out.count("Preset tiny: ") == 1
    assert main(["report", "--all", "--preset", "tiny", "--seeds", "1"]) == 0
    assert capsys.readouterr().out.count("Preset tiny: ") > 4
    assert main(["query"]) == 0
    assert {"study", "made_for", "nb201_main"} <= {*capsys.readouterr().out.split()}


def test_status_of_an_empty_folder_shows_the_demo_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--all"]) == 0
    assert "ablation_calr_ms demo 36 0 36" in " ".join(capsys.readouterr().out.split())
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "more: `harness explain studies`"),
        (["ablation_calr_ms", "--all"], "either name studies or use --all"),
        (["ablation_clar_ms"], "did you mean 'ablation_calr_ms'"),
        (["no/such.py"], "there is no file no/such.py"),
        (["ablation_calr_ms", "--preset", "dmo"], "did you mean 'demo'"),
        (["ablation_calr_ms", "--seeds", "0"], "0 is not in the range x>=1"),
        (["ablation_calr_ms", "--only", "method.name=spso"], "existing values: fairnas, fsnas, spos"),
        (["ablation_calr_ms", "--only", "spos"], "expected key=value"),
        (["ablation_calr_ms", "with", "train.epochs=0"], "train.epochs must be at least 1, not 0"),
        (["ablation_calr_ms", "with", "train.epochz=1"], "no configuration key 'train.epochz'; did you mean 'epochs'?"),
        (["ablation_calr_ms", "with", "trian.epochs=1"], "no configuration section 'trian'"),
        (["ablation_calr_ms", "with", "schedule.gamma_prime=0"], "schedule.gamma_prime must be above 0"),
        (["ablation_calr_ms", "with", "clusters.edges=7"], "clusters.edges must be 1 to"),
        (["ablation_calr_ms", "with", "method.name=spso"], "did you mean 'spos'"),
        (["ablation_calr_ms", "with", "seed=3"], "use --seeds"),
        (["ablation_calr_ms", "with", "--jobs", "2"], "put options before `with`"),
    ],
)
def test_a_mistake_is_one_message_and_exit_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and "Traceback" not in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "0"], "0 is not in the range x>=1"),
        (["--threads", "0"], "0 is not in the range x>=1"),
        (["--retry", "done"], "'done' is not one of 'failed', 'lost', 'all'"),
        (["--device", "gpu"], "allowed are cpu, cuda and cuda:NUMBER"),
        (["--store", "file"], "the store file is not a directory"),
        (["--store", "file/runs"], "the store file/runs: Not a directory"),
        (["with", "train.epochs=0"], "train.epochs must be at least 1, not 0"),
    ],
)
def test_run_refuses_before_anything_runs(
    folder: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "file").touch()
    assert main(["run", "ablation_calr_ms", *TINY, *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and "Traceback" not in captured.err
    assert captured.out == ""
    assert not (folder / "runs").exists()


def test_a_study_that_does_not_import_shows_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "broken.py").write_text("from harness.study import Study\n\nstudy = Studi()\n")
    assert main(["plan", "broken.py"]) == 2
    assert f"{folder / 'broken.py'}:3 does not import: NameError" in capsys.readouterr().err
    (folder / "empty.py").write_text("")
    assert main(["plan", "empty.py"]) == 2
    assert "holds no study" in capsys.readouterr().err


def test_status_watches_the_trials_until_none_is_left(folder: Path) -> None:
    """Of three trials that others run, one was done before, one ends meanwhile, and one that nobody saw begin."""
    methods = '"spos", "fairnas", "fsnas"'
    rows = f'[Row({{"Method": name}}, {{"method.name": name}}) for name in ({methods})]'
    study = f'Study("three", "Three", {rows}, [Column("τ", "kendall_tau")])'
    (folder / "studies").mkdir(exist_ok=True)
    (folder / "studies" / "three.py").write_text(f"from harness.study import Column, Row, Study\nstudy = {study}\n")
    before, running, unseen = expand(find_studies("three")[0], get_preset("tiny"), 1)
    store_run(folder / "runs", before, 0.5)
    store_run(folder / "runs", running, status="running")
    command = [sys.executable, "-u", "-m", "harness", "status", "three", "--preset", "tiny", "--seeds", "1"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command += ["--watch", "0.2"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            assert "three/fairnas seed 0: started\n" in lines
            store_run(folder / "runs", running, 0.25)
            assert re.match(r"\[1/2\] three/fairnas seed 0: done after .*, τ 0.250$", next(lines))
            store_run(folder / "runs", unseen, 0.25)
            (last,) = [line for line in lines if "started" not in line]  # it may be seen while it is written
            assert last.startswith("[2/2] three/fsnas seed 0: done ")
            assert process.wait() == 0
        finally:
            process.kill()


def test_plan_imports_no_torch_and_loads_the_file_of_its_study_alone(folder: Path) -> None:
    (folder / "studies").mkdir(exist_ok=True)
    (folder / "studies" / "mine.py").write_text(MINE)
    script = (
        "import json, sys; from harness.cli import main; status = main(['plan', 'mine', '--preset', 'tiny']); "
        "loaded = [name for name in sys.modules if '.studies.' in name and '.presets' not in name]; "
        "print(json.dumps([status, loaded, sorted({'torch', 'pandas', 'sacred'} & set(sys.modules))]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    status, loaded, heavy = json.loads(done.stdout.splitlines()[-1])
    assert (status, heavy) == (0, []) and loaded == ["harness_components.user.studies.mine"], done.stderr


def test_a_name_collision_refuses_what_needs_the_name_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The default method is the one that two files register: commands that need no method still work."""
    (folder / "methods").mkdir(exist_ok=True)
    (folder / "methods" / "mine.py").write_text(SLOW.replace('"slow"', '"spos"'))
    with discovery.fresh():
        for command in (["query"], ["status"], ["list", "methods"], ["explain", "fairnas"], ["explain", "method"]):
            assert main(command) == 0, command
        capsys.readouterr()
        assert main(["plan", "ablation_calr_ms", *TINY]) == 2
    assert "two method registrations are named 'spos'" in capsys.readouterr().err
