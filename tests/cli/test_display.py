"""What commands show while trials run: lines where nobody watches, a live view on a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from harness.cli._announcement import announced
from harness.cli._display import Display, duration, shortened
from harness.cli._tally import Item, Running, Tally, items_of
from harness.components.preset import get_preset
from harness.study.catalogue import find_studies
from harness.study.layout import Column, Row
from harness.study.study import Study
from harness.work.plan import Plan, make_plan
from harness.work.slots import Slots
from harness.work.states import State, Work
from tests.stored_runs import store_run

TAU = [Column("Kendall's τ", "kendall_tau")]
ITEMS = [
    Item("a", "first/SPOS seed 0", columns=TAU),
    Item("b", "first/SPOS CaLR seed 0", columns=TAU),
    Item("c", "second/SPOS MS seed 0 +2", columns=TAU),
    Item("d", "second/FairNAS with a very long name of its row seed 0", columns=TAU),
]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (60, "1 min 00 s"),
        (3599.6, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations_for_readers(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_labels_are_shortened_so_that_rows_stay_apart() -> None:
    assert shortened("first/SPOS seed 0", 40) == "first/SPOS seed 0"
    short = shortened("ablation_calr_ms/FairNAS CaLR MS seed 0 +3", 24)
    assert cell_len(short) == 24 and short.startswith("FairNAS CaLR") and short.endswith("seed 0 +3")
    assert shortened("ablation_calr_ms/FairNAS MS seed 0", 27) == "ablation…/FairNAS MS seed 0"
    assert shortened("ablation_calr_ms/FairNAS MS seed 0", 20) == "FairNAS MS seed 0"
    assert shortened("first/FairNAS with a long name seed 0", 10) == "FairN…ed 0"


def on_paper(width: int = 40) -> Console:
    return Console(file=io.StringIO(), highlight=False, width=width)


def on_terminal(width: int, height: int = 25) -> Console:
    return Console(file=io.StringIO(), highlight=False, width=width, height=height, force_terminal=True)


def printed(console: Console) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def kept(console: Console) -> list[str]:
    """What was printed on a terminal, without colours and movements."""
    return [re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", line) for line in printed(console)]


def seen(display: Display) -> list[str]:
    """The lines of the live view."""
    plain = Console(file=io.StringIO(), width=display.console.width + 20, highlight=False)
    plain.print(display.view())
    return [line.rstrip() for line in printed(plain)]


@contextmanager
def follow(console: Console, **more: Any) -> Iterator[Display]:
    """Four trials: one done, one failed, one that runs, one that waits."""
    with Display(console=console, **more) as display, display.round(ITEMS):
        display.started(0, ITEMS[0].label)
        display.progress(0, {"event": "start", "run_id": "x-1"})
        display.started(1, ITEMS[1].label)
        display.finished(0, {"status": "done", "result": {"kendall_tau": 0.12345}})
        display.finished(1, {"status": "failed", "error": "[it] broke"})
        display.started(2, ITEMS[2].label)
        display.progress(2, {"event": "epoch", "step": 1, "steps": 5, "loss": 2.25, "tau": None})
        display.progress(2, {"event": "epoch", "step": 2, "steps": 5, "loss": 2.125, "tau": 0.5})
        yield display


def test_plain_lines_when_nobody_watches() -> None:
    console = on_paper()
    with follow(console):
        pass
    assert [re.sub(r"after [\d.]+ s", "after … s", line) for line in printed(console)] == [
        "first/SPOS seed 0: started",
        "first/SPOS CaLR seed 0: started",
        "[1/4] first/SPOS seed 0: done after … s, Kendall's τ 0.123",
        "[2/4] first/SPOS CaLR seed 0: failed after … s, [it] broke",
        "second/SPOS MS seed 0 +2: started",
    ]


def test_a_job_that_died_before_it_began_is_shown_as_lost() -> None:
    console = on_paper()
    with Display(console=console) as display, display.round(ITEMS):
        display.finished(0, {"status": "lost", "error": "killed", "again": True})
    (line,) = printed(console)
    assert line.startswith("first/SPOS seed 0: lost after") and line.endswith("killed; tried again")


def test_quiet_prints_failures_alone() -> None:
    for console in (on_paper(), on_terminal(80)):
        with follow(console, quiet=True) as display:
            assert not display.is_live
        (line,) = printed(console)
        assert "[2/4] first/SPOS CaLR seed 0" in line and "[it] broke" in line


def test_a_view_of_what_runs_on_a_terminal() -> None:
    with follow(on_terminal(100)) as display:
        assert display.is_live
        heading, trial, bar, counts = seen(display)
    assert not display.is_live
    assert heading.split() == ["trial", "stage", "step", "loss", "τ", "time", "left"]
    assert " ".join(trial.split()).startswith("second/SPOS MS seed 0 +2 train epoch 2/5 2.125 0.500 ")
    assert re.fullmatch(r"━{24}─{16}  59% +[\d.]+ s, about [\d.]+ s left", bar)
    assert counts == "1 done, 1 failed, 1 running, 1 waiting"


@pytest.mark.parametrize(
    ("width", "epochs", "ranked"),
    [(140, "epoch 211/250", "271/366 architectures"), (80, "epoch 211/250", "271/366 arch."), (60, "211/250", "")],
)
def test_steps_have_units_as_far_as_there_is_room(width: int, epochs: str, ranked: str) -> None:
    with Display(console=on_terminal(width)) as display, display.round(ITEMS[:2]):
        for number, item in enumerate(ITEMS[:2]):
            display.started(number, item.label)
        display.progress(0, {"event": "epoch", "step": 211, "steps": 250, "loss": 2.25})
        display.progress(1, {"event": "rank", "step": 271, "steps": 366})
        _, trained, searched, *_ = seen(display)
    assert epochs in trained and ranked in searched
    assert max(map(cell_len, (trained, searched))) <= width


def test_one_study_is_named_once() -> None:
    """Over the running trials, where nobody can overlook it; without a terminal every line has it."""
    study, items = Study("first", "", [Row({"M": "SPOS"})], TAU), ITEMS[:2]
    console = on_terminal(80)
    with Display([study], console) as display, display.round(items):
        for number, item in enumerate(items):
            display.started(number, item.label)
        assert [line.split()[0] for line in seen(display)[:3]] == ["first", "SPOS", "SPOS"]
        display.finished(0, {"status": "done", "result": {"kendall_tau": 0.5}})
    (line,) = [line for line in kept(console) if "done after" in line]
    assert line.startswith("[1/2] SPOS seed 0: done after")


def test_references_continue_the_counter() -> None:
    console, made = on_paper(80), Item("r", "references on digits seed 0", references=3)
    with Display(console=console) as display:
        display.tally.add([*ITEMS[:2], made])
        for items in (ITEMS[:2], [made]):
            with display.round(items):
                for number, item in enumerate(items):
                    display.started(number, item.label)
                    display.finished(number, {"status": "done", "result": {}})
    assert [line[:5] for line in printed(console) if "done after" in line] == ["[1/5]", "[2/5]", "[5/5]"]


def test_before_the_first_trial_it_says_what_takes_so_long() -> None:
    with Display(console=on_terminal(80)) as display, display.round(ITEMS):
        assert seen(display)[0] == "starting: the first process imports torch"


@pytest.mark.parametrize("width", [60, 40, 24])
def test_nothing_is_wider_than_a_narrow_terminal(width: int) -> None:
    console = on_terminal(width)
    with follow(console) as display:
        display.started(3, ITEMS[3].label)
        for number in (2, 3):
            display.progress(number, {"event": "epoch", "step": 211, "steps": 250, "loss": 12.125, "tau": -0.5})
        lines = seen(display)
        assert len(lines) == 5 and max(map(cell_len, lines)) <= width
        assert cell_len(lines[-1]) <= width - 4  # room for ^C
        assert lines[2].startswith("FairNAS ") and "seed 0" in lines[2]
        display.asked_to_stop = lambda: True
        assert seen(display)[-1].startswith("stopping cleanly")
        assert max(map(cell_len, seen(display))) <= width


def test_a_line_that_stays_fits_the_terminal_and_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for no_color in (False, True):
        if no_color:
            monkeypatch.setenv("NO_COLOR", "1")
        console = on_terminal(60)
        with Display(console=console) as display, display.round(ITEMS):
            for number, status in ((3, "done"), (1, "failed")):
                display.started(number, ITEMS[number].label)
                display.finished(number, {"status": status, "result": {"kendall_tau": 0.5}, "error": "broke"})
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert ("\x1b[32mdone\x1b[0m" in text, "\x1b[31mfailed\x1b[0m" in text) == (not no_color, not no_color)
        (line,) = [one for one in text.splitlines() if "seed 0" in one and "Kendall's τ 0.500" in one]
        assert cell_len(re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", line)) <= 60 and "…" in line and "seed 0" in line


def test_more_trials_than_lines_are_counted() -> None:
    items = [Item(str(number), f"study/row seed {number}") for number in range(20)]
    with Display(console=on_terminal(80, height=10)) as display, display.round(items):
        for number, item in enumerate(items):
            display.started(number, item.label)
        lines = seen(display)
    assert len(lines) < 10 and "… and 15 more" in lines


def test_every_stage_is_named_and_counted() -> None:
    job = Running(Item("a", "search"))
    job.take({"event": "epoch", "step": 5, "steps": 5, "loss": 2.0, "tau": 0.5})
    assert (job.stage, job.fraction) == ("train", 0.9)
    job.take({"event": "rank", "step": 5, "steps": 25})
    assert (job.stage, job.step, job.steps, job.loss, job.tau) == ("rank", 5, 25, 2.0, 0.5)
    assert job.fraction == pytest.approx(0.92)
    job.take({"event": "search", "step": 40, "steps": 60})
    with Display(console=on_terminal(80)) as display, display.round([job.item]):
        display.tally.running[0] = job
        assert "search" in seen(display)[1] and "40 done" in seen(display)[1]
    retraining = Running(Item("b", "retraining", retrains=True))
    retraining.take({"event": "epoch", "step": 5, "steps": 5, "loss": 2.0})
    assert (retraining.stage, retraining.fraction) == ("retrain", 1.0)
    ranking = Running(Item("c", "stored weights"))
    ranking.take({"event": "rank", "step": 1, "steps": 4})
    assert ranking.fraction == 0.25  # nothing is trained
    reference = Running(Item("d", "references", references=3))
    reference.take({"event": "untrained"})
    assert reference.stage == "untrained"


def test_a_resumed_trial_is_not_taken_for_a_fast_one() -> None:
    job = Running(Item("a", "resumed"))
    job.take({"event": "epoch", "step": 9, "steps": 10})
    assert job.fraction == pytest.approx(0.81) and job.worked == pytest.approx(0.09)


def test_the_bar_is_weighted_and_a_trial_counts_when_its_last_job_is_done() -> None:
    tally = Tally()
    long, short = Item("a", "long", (90.0, 5.0)), Item("b", "short", (5.0,))
    tally.add([long, short])
    tally.start(0, long)
    tally.progress(0, {"event": "epoch", "step": 1, "steps": 3})
    assert tally.fraction == pytest.approx(0.9 * 0.3) and tally.left is None
    ended = tally.finish(0, {"status": "done", "result": {}})
    assert ended and ended[1] == 1 and tally.trials == (0, 2) and tally.waiting == 2
    tally.start(0, long)
    tally.finish(0, {"status": "done", "result": {}})
    assert tally.trials == (1, 2) and tally.count("done") == 1 and tally.fraction == pytest.approx(0.95)
    tally.start(1, short)
    tally.finish(1, {"status": "elsewhere"})
    assert tally.waiting == 1
    tally.elsewhere(short)
    assert tally.trials == (2, 2) and tally.fraction == 1.0


def test_searches_of_a_later_round_are_jobs_of_the_trial_that_was_counted_first() -> None:
    console = on_terminal(80)
    first, later = (Item("a", "study/row search seed 0", jobs, searches=True) for jobs in ((9.0, 1.0, 1.0), (1.0, 1.0)))
    done = {"status": "done", "result": {}}
    with Display(console=console) as display:
        with display.round([first]):
            display.started(0, first.label)
            display.finished(0, done)
        with display.round([later, later]):
            for number in (0, 1):
                display.started(number, later.label)
            display.finished(0, done)
            assert seen(display)[-1] == "0 done, 1 running"
            display.finished(1, done)
            assert seen(display)[-1] == "1 done" and seen(display)[-2].endswith(" s")  # no time is left
    told = [re.sub(r".*after [\d.]+ s", "", line) for line in kept(console) if "done after" in line]
    assert told == [", 2 searches to come", ", 1 search to come", ""]


def test_the_end_of_a_trial_is_one_line_of_a_narrow_terminal_with_row_and_number() -> None:
    rows = ["SPOS CaLR", "FairNAS CaLR MS"]
    items = [Item(row, f"ablation_calr_ms/{row} seed 0", columns=TAU) for row in rows]
    console = on_terminal(60)
    with Display(console=console) as display, display.round(items):
        for number, item in enumerate(items):
            display.started(number, item.label)
            display.finished(number, {"status": "done", "result": {"kendall_tau": -0.047}})
    told = [line for line in kept(console) if "Kendall" in line]
    assert max(map(cell_len, told)) <= 60
    for row, line in zip(rows, told, strict=True):
        assert f"{row} seed 0: done" in line and line.endswith("Kendall's τ -0.047")


def test_the_time_left_counts_steps_and_the_start_of_every_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds to start and ten per step: a long trial of the same speed is not judged by starts."""
    clock = [0.0]
    monkeypatch.setattr("harness.cli._tally.time.monotonic", lambda: clock[0])
    tally = Tally()
    short, long = Item("a", "short", (4.0,)), Item("b", "long", (400.0,))
    tally.add([short, long, Item("c", "waiting", (4.0,))])
    tally.start(0, short)
    for step in range(1, 5):
        clock[0] += 20 if step == 1 else 10
        tally.progress(0, {"event": "epoch", "step": step, "steps": 4})
        assert (tally.left is None) is (step == 1)
    per_weight = 30 / (0.9 * 3)  # training is nine tenths of a trial
    running = 4.0 * 0.1 * per_weight
    assert tally.left == pytest.approx(running + 404.0 * per_weight + 2 * 20)
    tally.finish(0, {"status": "done", "cost": {"stage_seconds": {"train": 40.0, "rank": 0.0}}})
    assert tally.left == pytest.approx(404.0 * per_weight + 2 * (50 - 4 * per_weight))
    tally.start(1, long)
    tally.progress(1, {"event": "epoch", "step": 1, "steps": 2})
    tally.progress(1, {"event": "epoch", "step": 2, "steps": 2})
    tally.finish(1, {"status": "interrupted"})
    assert tally.fraction == pytest.approx(4 / 408) and tally.trials == (2, 3)


# --- what a plan gives ---


def two_studies() -> list[Study]:
    """Studies that share their first trial; the second ranks it in another way, and its first column is not τ."""
    accuracy = [Column("Top-1 (%)", "top1_accuracy", digits=1), *TAU]
    return [
        Study("one", "", [Row({"M": "SPOS"}), Row({"M": "FairNAS"}, {"method.name": "fairnas"})], TAU),
        Study("two", "", [Row({"M": "Base"}, {"rank.images": 32}), Row({"M": "x3"}, {"train.epochs": 15})], accuracy),
    ]


def planned(*runs: Any) -> Plan:
    return make_plan(two_studies(), "tiny", list(runs), seeds=1)


def test_items_have_study_row_and_further_rows_the_passes_and_the_jobs() -> None:
    spos, fairnas, longer = items = items_of(planned().work, two_studies())
    assert [one.label for one in items] == ["one/SPOS seed 0 +1", "one/FairNAS seed 0", "two/x3 seed 0"]
    assert len(spos.jobs) == 2 and len(fairnas.jobs) == 1  # one ranking in training, the other after it
    epochs = get_preset("tiny").settings["train.epochs"]
    assert longer.jobs[0] / spos.jobs[0] == 15 / epochs and fairnas.jobs[0] <= spos.jobs[0]


def test_the_first_column_of_the_study_is_shown() -> None:
    items = items_of(planned().work, two_studies())
    console = on_paper(200)
    with Display(console=console) as display, display.round(items):
        for number in (2, 1):
            display.started(number, items[number].label)
            result = {"kendall_tau": 0.25, "top1_accuracy": 61.234, "observed": {}}
            display.finished(number, {"status": "done", "result": result})
    assert [line.partition(" s, ")[2] for line in printed(console)[1::2]] == ["Top-1 (%) 61.2", "Kendall's τ 0.250"]


def test_a_result_without_the_first_column_shows_the_next() -> None:
    items = items_of(planned().work, two_studies())
    console = on_paper(200)
    with Display(console=console) as display, display.round(items):
        display.started(2, items[2].label)
        display.finished(2, {"status": "done", "result": {"kendall_tau": 0.25, "top1_accuracy": None}})
    assert printed(console)[-1].endswith("Kendall's τ 0.250")


def test_the_header_says_what_runs_and_why(tmp_path: Any) -> None:
    work = planned().work
    (study,) = find_studies("ablation_calr_ms")
    request = make_plan([study], "tiny", [], seeds=1).work[0].requests[0]
    invalid = replace(store_run(tmp_path, request, 0.5), invalid="a mistake")
    states = [State.WAITING, State.WAITING, State.FAILED, State.LOST, State.AGAIN, State.RANK, State.INTERRUPTED]
    trials = [work[0].trial.with_seed(seed) for seed in range(len(states) + 1)]
    todo = [replace(work[0], trial=trial, state=state) for trial, state in zip(trials, states, strict=False)]
    todo.append(replace(work[0], trial=trials[-1], attempts=(invalid,)))
    todo.append(todo[states.index(State.RANK)])  # a second ranking of the same trial
    left = [replace(work[1], state=State.DONE)] * 3 + [replace(work[1], state=State.FAILED)]
    first, why, *others = announced(Plan((*todo, *left), ()), todo, Slots.cpu(2), tmp_path, 3)
    assert first == f"8 trials to run, 2 in parallel, stored in {tmp_path}"
    assert why.split(", ") == [
        "  2 new",
        "1 failed before",
        "1 lost before",
        "1 again (more observations)",
        "1 ranked again (nothing trained)",
        "1 interrupted before",
        "1 again (declared invalid)",
    ]
    assert others == [
        "  3 stored already",
        "  1 failed before: left out without --retry failed",
        "  3 references to make afterwards",
    ]


def test_nothing_is_said_of_a_single_new_trial_but_that() -> None:
    work: list[Work] = list(planned().work)
    assert list(announced(Plan(tuple(work[:1]), ()), work[:1], Slots.cpu(4), Path("runs"), 0)) == [
        "1 trial to run, 1 in parallel, stored in runs",
        "  1 new",
    ]


def test_ranks_and_needs_of_gpus_are_said() -> None:
    work = [replace(one, requests=(replace(one.requests[0], devices=2),)) for one in planned().work[:2]]
    plan, gpus = Plan(tuple(work), ()), ("0", "1", "2", "3")
    lines = list(announced(plan, work, Slots(gpus, ranks=2), Path("runs"), 0))
    assert lines[0] == "2 trials to run, 2 in parallel by 2 ranks each, stored in runs"
    assert lines[1] == "  2 need 2 GPUs each, as the study says"
    assert "  2 need" not in "\n".join(announced(plan, work, Slots.cpu(1), Path("runs"), 0))
