"""Workers of a cluster as `run` sees them: lost ones are replaced, refusals end everything. Without an engine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.errors import HarnessError, UserError
from harness.stores.claims import ClaimRecord
from harness.stores.places import Places
from harness.study.catalogue import find_studies
from harness.work.jobs import Stopping
from harness.work.plan import Asked
from harness.work.processes import Processes
from harness.work.remote.following import LOSSES, Following, Heard
from harness.work.slots import Slots
from harness.work.states import Work
from harness.work.worker import Screen, Settings
from tests.toy import user_folder


@dataclass
class Script:
    """A crew whose every worker says what is written for it; a worker of which nothing is written never begins."""

    says: list[list[Heard]]
    wanted: int = 2
    ranks: int = 1
    needs: str = "1 CPUs"
    started: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    pending: list[Heard] = field(default_factory=list)

    def start(self, worker: int) -> None:
        self.started.append(worker)
        if self.says:
            self.pending += [Heard(worker, one.messages, one.over, one.lost) for one in self.says.pop(0)]

    def listen(self) -> Iterator[Heard]:
        if self.pending:
            yield self.pending.pop(0)

    def stop(self) -> None:
        pass

    def drop(self, worker: int) -> None:
        self.dropped.append(worker)


@dataclass
class Seen:
    """A screen that remembers."""

    events: list[tuple[Any, ...]] = field(default_factory=list)
    stopping: bool = False

    def say(self, line: str) -> None:
        self.events.append(("say", line))

    def started(self, number: int, label: str) -> None:
        self.events.append(("started", number))

    def progress(self, number: int, report: Mapping[str, Any]) -> None:
        self.events.append(("progress", number))

    def finished(self, number: int, answer: Mapping[str, Any]) -> None:
        self.events.append(("finished", number, answer["status"]))

    def elsewhere(self, work: Work) -> None: ...


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def session(tmp_path: Path, seen: Seen) -> Iterator[Following]:
    with user_folder(tmp_path):
        settings = Settings(Places(Path("runs")))
        asked = Asked(find_studies("ablation_calr_ms"), "tiny", 1, only={"method_name": ["spos"]})

        def show(todo: Sequence[Work], parallel: int) -> contextlib.AbstractContextManager[Screen]:
            return contextlib.nullcontext(seen)

        place, executor = settings.open(), Processes(Slots.cpu(1))
        yield Following(place, settings, asked, executor, Stopping(), show)


def told(session: Following, kind: str, data: Mapping[str, Any] | None = None, worker: int = 0) -> Heard:
    """An event of the first trial."""
    trial = session.plan.work[0].trial
    return Heard(worker, ({"event": kind, "key": trial.key, "ranking": trial.ranking_key, "data": dict(data or {})},))


HERE, OVER = Heard(0, ({"event": "here"},)), Heard(0, over=True)
NOTHING_LEFT = Heard(0, ({"event": "worked", "left": 0},))


def test_a_lost_worker_is_replaced_and_its_trial_goes_on_elsewhere(session: Following, seen: Seen) -> None:
    first = [HERE, told(session, "started"), Heard(0, lost="NodeDiedError: gone")]
    second = [HERE, told(session, "started"), told(session, "finished", {"status": "done"}), NOTHING_LEFT, OVER]
    session.crew = crew = Script([first, [], second])
    session.run()
    assert crew.started == [0, 1, 0] and crew.dropped == [1]  # the second never began, and nothing was left for it
    label = session.plan.work[0].label
    assert seen.events == [
        ("started", 0),
        ("finished", 0, "elsewhere"),
        ("say", f"a worker was lost (NodeDiedError: gone); {label} is taken over"),
        ("started", 0),
        ("finished", 0, "done"),
    ]
    assert [answer["status"] for _, answer in session.answers] == ["done"]


def test_of_two_workers_that_begin_a_trial_the_one_that_has_its_claim_is_shown(session: Following, seen: Seen) -> None:
    session.crew = crew = Script([[], []])
    crew.pending = [
        told(session, "started", worker=0),
        told(session, "started", worker=1),
        told(session, "progress", {"event": "epoch"}, worker=1),
        told(session, "finished", {"status": "elsewhere"}, worker=0),
        told(session, "finished", {"status": "failed", "error": "broken"}, worker=1),
        NOTHING_LEFT,
    ]
    session.run()
    assert seen.events == [("started", 0), ("progress", 0), ("finished", 0, "failed")]
    assert session.errors == {session.plan.work[0].trial.key: "broken"}


def test_stopped_workers_have_time_until_their_trials_are_not_claimed(
    session: Following, seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims, key = session.place.claims, session.plan.work[0].trial.key
    claim = claims.acquire(key)
    assert claim is not None
    asked: list[bool] = []

    def holder(key: str) -> ClaimRecord | None:
        found = type(claims).holder(claims, key)
        asked.append(found is not None)
        claim.release()  # as the worker does once it has saved
        return found

    class Stopped(Script):
        def listen(self) -> Iterator[Heard]:
            yield from super().listen()
            session.stopping.ask()

    monkeypatch.setattr(claims, "holder", holder)
    session.crew = Stopped([[told(session, "started")]], wanted=1)
    session.run()
    assert asked == [True, False]
    assert seen.stopping and seen.events == [("started", 0), ("finished", 0, "interrupted")]


def test_a_refusal_ends_all_workers_with_its_reason(session: Following) -> None:
    session.crew = crew = Script([[Heard(0, ({"event": "refused", "error": "another version"},))], [HERE]])
    with pytest.raises(UserError, match="another version"):
        session.run()
    assert sorted(crew.dropped) == [0, 1]


def test_workers_that_are_lost_again_and_again_are_not_replaced_for_ever(session: Following) -> None:
    session.crew = crew = Script([[HERE, Heard(0, lost="out of memory")] for _ in range(100)], wanted=1)
    with pytest.raises(HarnessError, match=f"{LOSSES + 1} workers were lost in a row, .* out of memory"):
        session.run()
    assert len(crew.started) == LOSSES + 1
