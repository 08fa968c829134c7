"""Words for states, kinds and statuses: typed in the code, plain text wherever they are stored or printed."""

from __future__ import annotations

import json
import pickle

import pytest

from harness.documents import Word
from harness.stores.stored import Status
from harness.work.jobs import Answered
from harness.work.states import Kind, State


@pytest.mark.parametrize("words", [State, Kind, Status, Answered])
def test_a_word_is_the_plain_text_it_was(words: type[Word]) -> None:
    for word in words:
        plain = word.value
        assert type(plain) is str and word == plain and hash(word) == hash(plain) and word.meaning
        assert f"{word}|{word:>12}|" + str(word) == f"{plain}|{plain:>12}|" + plain
        assert json.dumps({"is": word, word: 1}) == json.dumps({"is": plain, plain: 1})
        assert words(plain) is word and pickle.loads(pickle.dumps(word)) is word
        assert {plain: "found"}[word] == "found"


def test_every_status_of_a_run_is_a_state_of_its_trial() -> None:
    assert {State(status) for status in Status} == {
        State.DONE,
        State.FAILED,
        State.INTERRUPTED,
        State.RUNNING,
        State.LOST,
    }
