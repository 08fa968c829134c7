"""Seeds added until every comparison is decided: the plan of `run --until decided`. Does not import torch.

What is compared, and when it is decided, is another's affair: here are the rows that a comparison needs and how many
seeds each of them gets. Every plan looks at what is stored, so an interrupted run continues where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from harness.stores.stored import StoredRun
from harness.study.study import Request
from harness.work.plan import Asked, Plan, make_plan
from harness.work.states import State, Work

Place = tuple[str, int, str]
"""A row of a study on a data set."""


@dataclass(frozen=True)
class Question:
    """A comparison: the rows that it needs more seeds of, until it is decided."""

    places: frozenset[Place]
    decided: bool


@dataclass
class Until:
    """Plans ever more seeds for the rows of undecided comparisons, each time that it is asked for a plan."""

    asked: Asked
    questions: Callable[[Sequence[StoredRun]], Sequence[Question]]
    """The comparisons as the stored runs leave them."""
    planned: Callable[[str], int]
    """By study, the number of seeds that every row gets."""
    first: int
    """The number of seeds before which nothing can be decided."""
    most: int
    """The most seeds of a row."""
    parallel: int = 1
    """How many trials run at once: as many are planned, if few rows are left."""
    retry: str | None = None
    say: Callable[[str], None] = lambda line: None
    seeds: dict[Place, int] = field(default_factory=dict)
    """How many seeds each row gets now."""

    def __post_init__(self) -> None:
        self._tried: set[tuple[str, State]] = set()

    def plan(self, runs: list[StoredRun]) -> Plan:
        """Everything that is wanted now. What the last plan asked for and is still not done has been tried."""
        asked = self.asked
        everything = make_plan(
            asked.studies,
            asked.preset,
            runs,
            seeds=self.most,
            overrides=asked.overrides,
            only=asked.only,
            keep=asked.keep,
        )
        questions = self.questions(runs)
        undecided = [one for one in questions if not one.decided]
        for place in {_place(request) for work in everything.work for request in work.requests}:
            self.seeds.setdefault(place, min(self.most, self.planned(place[0])))
        self._raise(undecided, self.first)
        while not (todo := self._open(everything)):
            places = self._waiting(undecided)
            if not places:
                break
            self._raise(undecided, 1 + min(map(self.seeds.__getitem__, places)), max(1, self.parallel // len(places)))
        self._tried |= {(work.trial.key, work.state) for work in todo}
        self.say(self._told(questions, todo))
        return Plan(tuple(filter(self._is_wanted, everything.work)), everything.studies)

    def _raise(self, undecided: Iterable[Question], seeds: int, more: int = 1) -> None:
        """Give the rows of undecided comparisons so many seeds at least; `more` than one where few rows are left."""
        for place in {place for one in undecided for place in one.places}:
            if self.seeds.get(place, 0) < seeds:
                self.seeds[place] = min(self.most, seeds + more - 1)

    def _waiting(self, undecided: Iterable[Question]) -> set[Place]:
        """The rows that undecided comparisons may have more seeds of."""
        return {place for one in undecided for place in one.places if self.seeds[place] < self.most}

    def _open(self, everything: Plan) -> list[Work]:
        """What is wanted, not done, and was not tried."""
        return [
            work
            for work in everything.work
            if self._is_wanted(work)
            and (work.state is State.RUNNING or work.kind(self.retry) is not None)
            and (work.trial.key, work.state) not in self._tried
        ]

    def _is_wanted(self, work: Work) -> bool:
        return any(request.seed < self.seeds.get(_place(request), 0) for request in work.requests)

    def _told(self, questions: Sequence[Question], todo: Sequence[Work]) -> str:
        decided = sum(one.decided for one in questions)
        text = f"{decided} of {len(questions)} comparisons decided"
        if decided == len(questions):
            return text
        if not todo:
            return f"{text}; the others stay undecided with {self.most} seeds"
        rows = {
            _place(request) for work in todo for request in work.requests if request.seed < self.seeds[_place(request)]
        }
        most = max(self.seeds[place] for place in rows)
        return f"{text}; waiting for up to {most} seeds of {len(rows)} row{'s' * (len(rows) != 1)}"


def _place(request: Request) -> Place:
    return request.study, request.row, request.dataset
