"""`run --until decided`: seeds are added for the rows that need them, until every comparison is decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from harness.cli import main
from harness.cli._until import Ending
from harness.errors import UserError
from harness.stores.directory.store import DirectoryStore
from harness.study.layout import Column, Comparison, Row
from harness.study.study import Study
from harness.work.plan import Asked
from harness.work.states import State
from harness.work.until import Until
from tests.stored_runs import store_run

Tau = Callable[[int, int], float | None]
"""The τ of a row's seed; None for a trial that fails."""


def study(rows: int) -> Study:
    return Study(
        "mine",
        "Made up",
        [Row({"Rate": f"0.{number + 1}"}, {"optimiser.learning_rate": (number + 1) / 10}) for number in range(rows)],
        [Column("τ", "kendall_tau")],
    )


def work(tmp_path: Path, asked: Asked, until: Until, tau: Tau) -> list[int]:
    """Do what is planned until nothing is; return how many seeds each row has."""
    store = DirectoryStore(tmp_path)
    while todo := [one for one in until.plan(list(store.runs())).work if one.state is State.WAITING]:
        for one in todo:
            request = one.requests[0]
            value = tau(request.row, request.seed)
            store_run(tmp_path, request, value, status="done" if value is not None else "failed")
        store = DirectoryStore(tmp_path)
    rows = range(len(asked.studies[0].rows))
    return [sum(place[1] == row and seeds for place, seeds in until.seeds.items()) for row in rows]


def differing(d: Sequence[float]) -> Tau:
    """Rows whose differences from the first have so many deviations as mean; seeds differ by more than that."""
    noise = np.random.default_rng(0).normal(size=(len(d), 60))
    return lambda row, seed: 0.5 + 0.02 * float(noise[0, seed]) + 0.001 * (d[row] + (row > 0) * float(noise[row, seed]))


def test_a_large_effect_is_decided_within_12_seeds_and_none_is_not(tmp_path: Path) -> None:
    asked, ending = Asked([study(3)], "tiny"), Ending({}, 12)
    lines: list[str] = []
    seeds = work(tmp_path, asked, ending.until(asked, 1, None, lines.append), differing([0, 3, 0]))
    large, none = ending.look(asked, list(DirectoryStore(tmp_path).runs()))
    assert (large.verdict, none.verdict) == ("supported", "undecided")
    assert len(large.compared.seeds) < 12
    # Only the rows of what is undecided go on.
    assert seeds == [12, len(large.compared.seeds), 12]
    assert lines[0].startswith("0 of 2 comparisons decided; waiting for up to 6 seeds of 3 rows")
    assert lines[-1] == "1 of 2 comparisons decided; the others stay undecided with 12 seeds"


def test_a_verdict_that_was_reached_stays(tmp_path: Path) -> None:
    """Rows go on for the sake of others; what they show later does not take a decision back."""
    noise = [0.0, 0.0002, -0.0001, 0.0001, -0.0002, 0.0001]
    taus = [0.01 + one for one in noise] + [-0.02, 0.03, -0.05, 0.04]
    asked, ending = Asked([study(2)], "tiny"), Ending({}, 10)
    ended = work(tmp_path, asked, ending.until(asked, 1, None, print), lambda row, seed: row * taus[seed])
    assert ended == [5, 5]
    more = Asked([study(2)], "tiny", seeds=10)
    assert work(tmp_path, more, ending.until(more, 1, None, print), lambda row, seed: row * taus[seed]) == [10, 10]
    assert ending.look(more, list(DirectoryStore(tmp_path).runs()))[0].verdict == "supported"


def test_equal_rows_are_shown_to_be_equivalent(tmp_path: Path) -> None:
    asked, ending = Asked([study(2)], "tiny"), Ending({"": 0.01}, 30)
    seeds = work(tmp_path, asked, ending.until(asked, 1, None, print), differing([0, 0]))
    assert ending.look(asked, list(DirectoryStore(tmp_path).runs()))[0].verdict == "equivalent"
    assert max(seeds) < 12


def test_failed_trials_and_a_second_start_do_not_hold_it_up(tmp_path: Path) -> None:
    good = differing([0, 3])
    asked, ending = Asked([study(2)], "tiny"), Ending({}, 12)

    def half(row: int, seed: int) -> float | None:
        return None if (row, seed) == (1, 2) else good(row, seed)

    work(tmp_path, asked, ending.until(asked, 1, None, print), half)
    (one,) = ending.look(asked, list(DirectoryStore(tmp_path).runs()))
    assert one.verdict == "supported"
    assert 2 not in one.compared.seeds
    again = ending.until(asked, 1, None, print).plan(list(DirectoryStore(tmp_path).runs()))
    assert not any(work.kind() for work in again.work)


def test_few_rows_get_several_seeds_at_once_where_many_trials_run_in_parallel(tmp_path: Path) -> None:
    asked, ending = Asked([study(2)], "tiny"), Ending({}, 12)
    for parallel, more in ((1, 1), (2, 1), (8, 4)):
        store = tmp_path / str(parallel)
        until = ending.until(asked, parallel, None, print)
        for one in until.plan([]).work:
            store_run(store, one.requests[0], 0.5 + one.requests[0].row * (-1) ** one.requests[0].seed / 10)
        assert set(until.seeds.values()) == {5}
        until.plan(list(DirectoryStore(store).runs()))
        assert set(until.seeds.values()) == {5 + more}


def test_what_cannot_be_decided_is_refused() -> None:
    asked = Asked([study(3)], "tiny")
    with pytest.raises(UserError, match="--max-seeds is 4, but of 2 comparisons none can be decided before 6 seeds"):
        Ending({}, 4).until(asked, 1, None, print)
    with pytest.raises(UserError, match="nothing to decide: no rows are compared in mine"):
        Ending({}, 9).until(Asked([study(1)], "tiny"), 1, None, print)
    with pytest.raises(UserError, match="did you mean 'kendall_tau'"):
        Ending({"kendall": 1.0}, 9).until(asked, 1, None, print)


def test_run_trains_the_seeds_that_are_missing_and_tells_every_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "two_rates.py").write_text(
        "from harness.study import Column, Comparison, Row, Study\n"
        "rows = [Row({'Rate': rate}, {'optimiser.learning_rate': float(rate)}) for rate in ('0.1', '0.2', '0.3')]\n"
        "pair = Comparison({'Rate': '0.2'}, {'Rate': '0.1'})\n"
        "study = Study('two_rates', 'Rates', rows[:2], [Column('τ', 'kendall_tau')], comparisons=[pair])\n"
    )
    monkeypatch.chdir(tmp_path)
    from harness.components import discovery
    from harness.components.preset import get_preset
    from harness.study.catalogue import find_studies
    from harness.study.expansion import expand

    with discovery.fresh():
        (found,) = find_studies("two_rates")
        assert found.comparisons == [Comparison({"Rate": "0.2"}, {"Rate": "0.1"})]
        for request in expand(found, get_preset("tiny"), 5):
            if (request.row, request.seed) != (1, 4):
                store_run(tmp_path / "runs", request, 0.5 + request.row * (10 + request.seed / 1000), preset="tiny")
        command = ["run", "two_rates", "--preset", "tiny", "--until", "decided", "--max-seeds", "5", "--no-references"]
        assert main(command) == 0
        printed = capsys.readouterr().out
        assert main(["report", "two_rates", "--preset", "tiny", "--seeds", "5", "--compare"]) == 0
    assert "0 of 1 comparisons decided; waiting for up to 5 seeds of 1 row\n" in printed
    assert "10 of 10 trials done, 1 of them now" in printed
    # The one that is trained is far from the others that were made up: with it nothing is decided.
    assert "\nundecided " in printed
    assert "5 seeds  Rate = 0.2 against Rate = 0.1 (τ, digits)\n" in printed
    assert "`harness report two_rates --preset tiny --seeds 5 --compare` shows what they rest on" in printed
    assert "| Rate = 0.2 against Rate = 0.1 | undecided |" in capsys.readouterr().out
