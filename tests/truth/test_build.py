"""Building tables: pieces that survive interruptions, plans that do not mix, and the check of what was built.

The toy space's nine networks are cut into pieces of two. Pieces are made in process, except in the one
test that is about worker processes.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from harness.components.registries import DATASETS, SPACES
from harness.errors import DataError, HarnessError
from harness.training.stages.standalone import StandaloneRecipe, train_standalone
from harness.truth import build as building
from harness.truth.build import BuildPlan, assemble, build, class_numbers, make_piece, piece_file, pieces, read_piece
from harness.truth.table import Table, TableBenchmark
from harness.truth.verify import table_plan, verify_rows

RECIPE = StandaloneRecipe(width=2, depth=1, epochs=2, batch_size=20)


@pytest.fixture(scope="module", autouse=True)
def small_pieces(toy_project: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "CLASSES_A_PIECE", 2)
        yield


@pytest.fixture(scope="module")
def plan(small_pieces: None) -> BuildPlan:
    return BuildPlan.make("toy", "toy", RECIPE, seeds=3, seed=5)


@pytest.fixture(scope="module")
def made(plan: BuildPlan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all pieces, made in this process."""
    work = tmp_path_factory.mktemp("pieces")
    make_all(plan, work)
    return work


@pytest.fixture
def work(made: Path, tmp_path: Path) -> Path:
    """A copy of it to spoil."""
    for path in made.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def make_all(plan: BuildPlan, work: Path) -> None:
    for piece, numbers in reversed(pieces(plan, SPACES.get("toy")()).items()):
        make_piece(plan.json(), piece, numbers, str(work))


def equal(first: Table, second: Table) -> bool:
    return first.provenance == second.provenance and first.checksum() == second.checksum()


def test_pieces_cover_every_class_once(plan: BuildPlan) -> None:
    space = SPACES.get("toy")()
    planned = pieces(plan, space)
    assert class_numbers(space) == [0, 4, 5, 6, 7, 8, 9, 10, 11]
    assert [len(numbers) for numbers in planned.values()] == [2, 2, 2, 2, 1]
    assert sorted(number for numbers in planned.values() for number in numbers) == class_numbers(space)
    assert planned == pieces(plan, space) != pieces(replace(plan, seed=6), space)


def test_the_table_holds_what_stand_alone_training_gives(plan: BuildPlan, made: Path) -> None:
    space, dataset = SPACES.get("toy")(), DATASETS.get("toy")()
    table = assemble(plan, made)
    assert table.classes.tolist() == class_numbers(space) and table.seeds == 3
    for row, number in list(enumerate(table.classes))[::4]:
        correct = train_standalone(space, space.architecture(int(number)), dataset, RECIPE, seed=5, copies=3)
        assert (table.valid[row].tolist(), table.test[row].tolist()) == (list(correct.valid), list(correct.test))
    made_of = table.provenance
    assert made_of["data_checksum"] == dataset.checksum() and made_of["images"] == {
        "train": 40,
        "valid": 50,
        "test": 60,
    }
    assert "--space toy --data toy --seeds 3 --seed 5 --width 2" in made_of["command"]
    assert table_plan(table) == plan
    assert len({tuple(row) for row in table.test.tolist()}) > 3  # networks that differ
    assert TableBenchmark("built", space, table).accuracies("toy").shape == (12,)


def test_a_finished_build_starts_no_worker(plan: BuildPlan, work: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in work.iterdir()}
    assert list(build(plan, work, jobs=2)) == [(9, 9)]
    assert {path.name: path.stat().st_mtime_ns for path in work.iterdir()} == before


def test_what_a_broken_build_left_is_counted_and_the_rest_is_missing(plan: BuildPlan, work: Path) -> None:
    piece_file(work, 1).unlink()
    piece_file(work, 4).unlink()
    (work / ".piece-00001.json.999").write_text('{"plan": ')  # a worker that was killed while it wrote
    rest = cast("Generator[tuple[int, int], None, None]", build(plan, work, jobs=1))
    assert next(rest) == (6, 9)
    rest.close()
    with pytest.raises(DataError) as refusal:
        assemble(plan, work)
    assert str(piece_file(work, 1)) in str(refusal.value) and "run the build again" in str(refusal.value)


@pytest.mark.parametrize(
    "other",
    [{"seed": 6}, {"seeds": 2}, {"data_checksum": "0"}, {"recipe": replace(RECIPE, epochs=3)}],
    ids=lambda other: next(iter(other)),
)
def test_pieces_of_another_plan_are_refused(other: dict[str, Any], plan: BuildPlan, work: Path) -> None:
    for attempt in (
        lambda: list(build(replace(plan, **other), work, 1)),
        lambda: assemble(replace(plan, **other), work),
    ):
        with pytest.raises(DataError) as refusal:
            attempt()
        assert str(piece_file(work, 0)) in str(refusal.value)
        assert "another plan" in str(refusal.value) and "--work" in str(refusal.value)


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", "7", "null", '{"rows": []}', b"\xff\xfe".decode("latin-1"), "CUT", "NO ROWS", "ROW CUT"],
)
def test_a_damaged_piece_is_refused_by_name(damage: str, plan: BuildPlan, work: Path) -> None:
    path = piece_file(work, 2)
    whole = path.read_text()
    document = json.loads(whole)
    special = {
        "CUT": whole[:-20],
        "NO ROWS": json.dumps({"plan": document["plan"]}),
        "ROW CUT": json.dumps({**document, "rows": [document["rows"][0][:2]]}),
    }
    path.write_text(special.get(damage, damage), encoding="latin-1")
    for attempt in (lambda: list(build(plan, work, 1)), lambda: assemble(plan, work)):
        with pytest.raises(DataError) as refusal:
            attempt()
        assert str(refusal.value).startswith(f"{path}: not a piece of a table")
        assert "delete it" in str(refusal.value)


def test_a_piece_about_other_classes_is_refused(plan: BuildPlan, work: Path) -> None:
    """As after a change of the size of pieces: the table would have some classes twice and others never."""
    piece_file(work, 0).write_bytes(piece_file(work, 1).read_bytes())
    with pytest.raises(DataError, match="piece-00000.json: holds other classes than planned"):
        list(build(plan, work, 1))
    numbers = pieces(plan, SPACES.get("toy")())[1]
    assert [row[0] for row in read_piece(work, 1, plan, numbers) or []] == numbers


@pytest.mark.long
def test_an_interrupted_build_goes_on_and_ends_in_the_same_table(plan: BuildPlan, made: Path, tmp_path: Path) -> None:
    """With real worker processes, which import torch and the toy space anew: seconds each."""
    first = cast("Generator[tuple[int, int], None, None]", build(plan, tmp_path, jobs=2))
    assert next(first) == (0, 9)
    assert next(first)[0] in (1, 2)
    first.close()
    finished = {path: path.stat().st_mtime_ns for path in tmp_path.glob("piece-*.json")}
    assert finished
    told = list(build(plan, tmp_path, jobs=2))
    assert told[0][0] >= 1 and told[-1] == (9, 9)
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    table = assemble(plan, tmp_path)
    assert equal(table, assemble(plan, made))
    assert all(row.exact for row in verify_rows(table, sample=3, seed=0, jobs=2))


def test_verification_finds_exactly_the_falsified_row(plan: BuildPlan, made: Path) -> None:
    table = assemble(plan, made)
    falsified = table.test.copy()
    falsified[4] = (falsified[4] + 30) % 60
    rows = list(verify_rows(replace(table, test=falsified), sample=100, seed=0, jobs=1))
    assert sorted(row.number for row in rows) == table.classes.tolist()
    assert all(row.same_machine for row in rows)
    assert {row.number for row in rows if not row.exact} == {int(table.classes[4])}
    for row in rows:
        place = table.classes.tolist().index(row.number)
        assert (row.stored, row.again) == (falsified[place].tolist(), table.test[place].tolist())
        assert row.within or not row.exact


def test_verification_on_other_images_is_refused(plan: BuildPlan, made: Path) -> None:
    table = assemble(plan, made)
    old = replace(table, provenance={**table.provenance, "data_checksum": "0" * 64})
    with pytest.raises(DataError, match="made on other images: data set 'toy' had the checksum 0000"):
        next(iter(verify_rows(old, 1, 0, 1)))


def test_a_class_that_diverges_is_named_with_what_to_do(plan: BuildPlan, tmp_path: Path) -> None:
    wild = replace(plan, recipe=replace(RECIPE, learning_rate=1e30))
    with pytest.raises(HarnessError, match=r"class \d+ \(.*diverged.*--learning-rate"):
        make_all(wild, tmp_path)
    assert not list(tmp_path.glob("piece-*"))
