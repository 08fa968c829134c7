"""What the log of a `mongod` says went wrong.

The server (4.4 and later) writes one JSON document per line; what comes before its log is set up is plain text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def first_errors(log: Path, begin: int) -> str:
    """The first errors in the log since `begin`, else its first lines of plain text."""
    try:
        with log.open("rb") as file:
            file.seek(begin)
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"{log}: {error.strerror}"
    errors, others = [], []
    for line in filter(str.strip, lines):
        try:
            entry = json.loads(line)
            if entry["s"] in ("E", "F"):
                errors.append(_text(entry))
        except (ValueError, TypeError, KeyError):
            # Plain text from before the log was set up: an unknown option, a library that was not found.
            others.append(line.strip())
    told = list(dict.fromkeys(filter(None, errors or others)))[:2]
    return "\n  ".join([*told, f"see {log}"])


def _text(entry: dict[str, Any]) -> str:
    about = entry.get("attr") or {}
    detail = about.get("error", "")
    detail = detail.get("errmsg", "") if isinstance(detail, dict) else detail
    inner = about.get("message")
    detail = inner.get("msg", detail) if isinstance(inner, dict) else detail
    return " ".join(f"{entry['msg']}: {detail}".split())[:300] if detail else " ".join(entry["msg"].split())
