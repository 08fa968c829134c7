"""Workers of one study agree on its files: the study's own, and those of its components. Imports no torch.

The first worker tells the store the hashes of the files, one document per study and scale. Every other worker must have
the same files: results of two versions would otherwise stand in one table.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.components.preset import get_preset
from harness.components.registries import PRESETS
from harness.documents import utc_text
from harness.errors import UserError
from harness.files import sha256
from harness.stores.board import FILES, Board, note_key
from harness.study.catalogue import file_of
from harness.study.expansion import expand_stored
from harness.work.plan import Asked

SHOWN = 12
"""Digits of a hash in a message."""


class OtherFiles(UserError):
    """This worker has other files than the workers that began the study."""


@dataclass(frozen=True)
class Agreement:
    """The files of what is asked for, by study, and where their hashes are kept."""

    asked: Asked
    files: Mapping[str, Mapping[str, Path]]
    """By study, its files by name."""
    board: Board

    @classmethod
    def of(cls, asked: Asked, board: Board) -> Agreement:
        """The agreement about everything that is asked for: seeds and `--only` do not matter."""
        return cls(asked, {study.name: files_of(replace(asked, studies=[study])) for study in asked.studies}, board)

    def tell(self) -> None:
        """Tell the store these files, in the place of those that it was told before."""
        for study in self.files:
            self.board.replace(FILES, self._key(study), self._told(study))

    def check(self) -> None:
        """Raise `OtherFiles` unless the store was told these files. What it was not told yet, it is told now."""
        for study in self.files:
            mine = self._told(study)
            told = self.board.post(FILES, self._key(study), mine)
            if told["files"] != mine["files"]:
                raise OtherFiles(_difference(study, mine["files"], told))

    def _key(self, study: str) -> str:
        return note_key(study, self.asked.preset, dict(self.asked.overrides))

    def _told(self, study: str) -> dict[str, Any]:
        hashes = {name: sha256(file) for name, file in self.files[study].items() if file.is_file()}
        about = {"study": study, "preset": self.asked.preset, "overrides": dict(self.asked.overrides)}
        return {**about, "files": hashes, "host": platform.node(), "time": utc_text()}


def files_of(asked: Asked) -> dict[str, Path]:
    """The files that the trials of these studies depend on, by folder and name: studies and components."""
    found: dict[str, Path] = {}
    for study in asked.studies:
        preset = get_preset(asked.preset, study.about)
        files = {file for file in [file_of(study)] if file is not None}
        files.add(PRESETS.entries[f"{preset.space}/{preset.name}"].file)
        for request in expand_stored(study, preset, list, 1, asked.overrides):
            files |= set(request.trial.sources().values())
        found |= {"/".join(file.parts[-2:]): file for file in sorted(files)}
    return found


def _difference(study: str, mine: Mapping[str, str], told: Mapping[str, Any]) -> str:
    """The files that differ, each in a line, and what to do."""
    theirs: Mapping[str, str] = told["files"]
    lines = []
    for name in sorted({*mine, *theirs}):
        here, there = (hashes[name][:SHOWN] if name in hashes else "missing" for hashes in (mine, theirs))
        if here != there:
            lines.append(f"  {name}: {here} here, {there} there")
    return "\n".join(
        [
            f"study {study} was begun with other files, on {told.get('host')} at {told.get('time')} (SHA-256):",
            *lines,
            "Copy the files from there. If the files here are the right ones, end the other workers and start this one "
            "with --new-files",
        ]
    )
