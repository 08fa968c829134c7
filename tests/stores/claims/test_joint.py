"""Claims in two places at once: held for everybody, whichever place they look at, and lost with either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from harness.stores.claims.directory import DirectoryClaims
from harness.stores.claims.joint import JointClaims
from harness.stores.claims.lease import ClaimLost
from harness.stores.claims.mongo import MongoClaims

KEY = "a" * 64

Places = tuple[DirectoryClaims, MongoClaims, JointClaims]


@pytest.fixture
def places(tmp_path: Path, mongo_database: Database[dict[str, Any]]) -> Places:
    here, there = DirectoryClaims(tmp_path / "claims", 30.0), MongoClaims(mongo_database, 30.0)
    return here, there, JointClaims(here, there)


def test_held_wherever_one_looks_and_free_after_release(places: Places) -> None:
    here, there, both = places
    claim = both.acquire(KEY, at_least=4)
    assert claim is not None and claim.attempt == 5
    assert all(claims.holder(KEY) is not None and claims.acquire(KEY) is None for claims in places)
    claim.renew()
    claim.confirm()
    claim.release()
    assert all(claims.holder(KEY) is None for claims in places)
    alone = here.acquire(KEY)  # as `run --offline` would
    assert alone is not None and alone.attempt == 6 and both.acquire(KEY) is None


def test_of_several_trials_those_held_in_either_place_are_told(places: Places) -> None:
    here, there, both = places
    for claims, key in ((here, "here"), (there, "there"), (both, "both")):
        assert claims.acquire(key) is not None
    assert both.held({"here", "there", "both", "free"}) == {"here", "there", "both"}


def test_what_cannot_be_had_in_the_database_is_not_kept_in_the_directory(places: Places) -> None:
    here, there, both = places
    assert there.acquire(KEY, at_least=7) is not None
    assert both.acquire(KEY) is None and here.holder(KEY) is None


@pytest.mark.parametrize("place", [0, 1])
def test_lost_with_either(tmp_path: Path, mongo_database: Database[dict[str, Any]], place: int) -> None:
    parts = DirectoryClaims(tmp_path / "claims", 0.05), MongoClaims(mongo_database, 0.05)
    claim = JointClaims(*parts).acquire(KEY)
    assert claim is not None
    (record,) = parts[place].records()
    while not parts[place].drop(record):  # as soon as the lease is over
        pass
    with pytest.raises(ClaimLost):
        claim.confirm()
