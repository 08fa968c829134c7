"""Randomness comes from identity: the streams of a seed and a name stay what they are, in every version."""

from __future__ import annotations

from harness.seeds import derive, make_rng


def test_streams_have_the_values_that_stored_runs_were_made_with() -> None:
    assert derive(0, "initialisation") == 1232821161063638841
    assert derive(7, "data order", 3) == 7318255469154970633
    assert make_rng(0, "paths").random() == 0.6358240175631212
    assert make_rng(1, "split").sample(range(100), 4) == [77, 30, 4, 71]


def test_every_part_of_a_purpose_counts() -> None:
    streams = [derive(0, "a"), derive(1, "a"), derive(0, "b"), derive(0, "a", 0), derive(0, "a", 1), derive(0, "a0")]
    assert len(set(streams)) == len(streams) and all(0 <= one < 2**63 for one in streams)
