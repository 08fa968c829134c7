"""What is kept beside a run's own documents, as types: marks, references, curves, claims, mirrored runs, archives.

The rules of `harness.stores.schema` hold here, too.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from harness.stores.schema import Ranked, Versioned
from harness.stores.trial_text import TIME, Number, Owner, TrialText


class InvalidDocument(Versioned):
    """`invalid.json`: the run is kept, and never counted."""

    reason: Annotated[str, "why"]


class AbsentDocument(Versioned):
    """`absent.json`: what was left out when the run was copied."""

    files: Annotated[dict[str, str], "the SHA-256 of each file left out"]


class ReferenceDocument(TypedDict):
    """A reference in `references/KEY.json`, or in the database: the result of a predictor without training."""

    reference: Annotated[str, "which predictor"]
    cell: Annotated[TrialText, "the trial whose ranking it stands beside"]
    result: Annotated[Ranked, "what its ranking gave"]


class ImportedDocument(TypedDict):
    """Predictions from elsewhere, beside the references: judged when they are shown."""

    imported: Annotated[str, "the name that they were given"]
    space: Annotated[str, "the space of the architectures"]
    dataset: Annotated[str, "the data set that they are about"]
    source: Annotated[str, "the name of the file that they were read from"]
    sha256: Annotated[str, "the SHA-256 of that file"]
    accuracies: Annotated[dict[Number, float], "the predicted accuracy by the architecture's number"]


class Point(TypedDict):
    """One line of `metrics.jsonl`."""

    name: Annotated[str, "the curve"]
    step: Annotated[int, "the step"]
    value: Annotated[float | None, "the value; null if it is not a finite number"]
    timestamp: Annotated[str, "when it was measured", TIME]


class CurveColumns(TypedDict):
    """One curve of `metrics.json`, as columns of equal length."""

    steps: Annotated[list[int], "the steps"]
    values: Annotated[list[float | None], "the values; null where one is not a finite number"]
    timestamps: Annotated[list[Annotated[str, "a time", TIME]], "when they were measured"]


CurvesDocument = dict[str, CurveColumns]
"""`metrics.json`: every curve by its name."""


class ClaimDocument(TypedDict):
    """A claim, in a directory or in the database."""

    schema: Annotated[int, "the version of claims"]
    attempt: Annotated[int, "the number of the attempt"]
    owner: Annotated[Owner | None, "the process that holds it; null if none does"]
    held: Annotated[bool, "whether it is held"]
    lease: Annotated[float, "seconds without renewal after which it expires"]
    token: Annotated[str | None, "what distinguishes this claim from all others"]


class MongoClaimDocument(ClaimDocument):
    """A claim in the database, without its times."""

    generation: Annotated[int, "how often it was changed"]


class ArchivedFile(TypedDict):
    """A file of an archive."""

    sha256: Annotated[str, "its SHA-256"]
    size: Annotated[int, "its size in bytes"]


class ArchivedRun(TypedDict):
    """A run of an archive."""

    files: Annotated[dict[str, ArchivedFile], "its files by name"]
    absent: Annotated[dict[str, str], "the SHA-256 of files that were left out"]


class Archived(TypedDict):
    """The keys of every manifest."""

    schema: Annotated[int, "the version of manifests"]
    study: Annotated[str, "the study whose runs these are"]
    preset: Annotated[str, "its preset"]
    missing: Annotated[list[str], "what the study needs and the archive does not have"]
    runs: Annotated[dict[str, ArchivedRun], "the runs by id"]
    checksum: Annotated[str, "the SHA-256 of the rest"]


class ManifestDocument(Archived, total=False):
    """`manifest.json` of an archive."""

    references: Annotated[dict[str, ArchivedFile], "references by key"]


class Entry(TypedDict):
    """The keys of every file of a mirrored run."""

    name: Annotated[str, "its name"]
    size: Annotated[int, "its size in bytes"]
    sha256: Annotated[str, "its SHA-256"]
    modified: Annotated[int, "when it was changed, in microseconds since 1970"]


class TextEntry(Entry):
    """A small file, in the run's document itself."""

    text: Annotated[str, "its content"]


class FileEntry(Entry):
    """A larger file."""

    id: Annotated[Any, "its id in GridFS; null if it is not in the database"]


class Seal(TypedDict):
    """What shows that a summary is the one that was written (`harness.stores.mongo.seal`)."""

    files: Annotated[str, "SHA-256 over the names and checksums of the files that it was made from"]
    summary: Annotated[str, "SHA-256 over that, the run's id, the mark, the problems and the summary"]


class ProjectedKeys(TypedDict):
    """What readers need of every mirrored run."""

    run_id: Annotated[str, "the run's id"]
    cell16: Annotated[str, "the first 16 digits of the trial's key"]
    summary: Annotated[str, "the summary, as JSON (`harness.stores.schema.Summary`)"]
    invalid: Annotated[str | None, "why the run must not be counted"]
    problems: Annotated[list[tuple[str, str]], "places in the run that cannot be used, and reasons"]


class Projected(ProjectedKeys, total=False):
    """The same, with what older documents lack."""

    seal: Annotated[Seal, "its checksums"]


class Listed(TypedDict, total=False):
    """The files of a mirrored run."""

    documents: Annotated[list[TextEntry], "small files"]
    files: Annotated[list[FileEntry], "larger files"]


class MirroredKeys(TypedDict):
    """What shows how new a mirrored run is."""

    run_id: Annotated[str, "the run's id"]
    revision: Annotated[int, "how new it is (`harness.stores.mongo.snapshot`)"]


class MirroredState(MirroredKeys, total=False):
    """The same, with what only some have."""

    added: Annotated[list[str], "names of files added after completion"]


class MirroredDocument(Projected, Listed, MirroredState, total=False):
    """`harness` of a run's document in the database."""

    schema: Annotated[int, "the version of the run's documents"]
    origin: Annotated[str, "the SHA-256 of `cell.json`"]
    version: Annotated[int, "how often the document was written"]
    shown: Annotated[str, "what lists show it by, as JSON (`harness.stores.mongo.listing`); older documents have none"]
