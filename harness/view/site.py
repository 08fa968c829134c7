"""The pages as HTML: templates, scripts and styles, and the links between pages.

A page is a template with its content as JSON inside, so that it is complete without a further request: served live, the
script asks for what is new; opened from a file, it shows what is inside. Everything is loaded from this site alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from harness.components.discovery import component

if TYPE_CHECKING:
    import jinja2

FOLDER = Path(__file__).with_name("page")
PAGES = {"studies": "Studies", "runs": "Runs", "compare": "Compare"}
"""The pages that every page links to, with their names."""


@dataclass(frozen=True)
class Links:
    """Addresses of pages: paths of a server, or files of a folder relative to a page of it."""

    root: str = "/"
    suffix: str = ""

    def page(self, kind: str, *parts: str) -> str:
        if kind == "studies":
            return f"{self.root}index.html" if self.suffix else self.root
        return self.root + "/".join([kind, *(quote(part, safe="") for part in parts)]) + self.suffix

    def static(self, name: str) -> str:
        return f"{self.root}static/{name}"


def render(kind: str, title: str, content: dict[str, Any], links: Links, store: str) -> str:
    """A whole page."""
    return (
        _environment()
        .get_template(f"{kind}.html.j2")
        .render(
            kind=kind,
            title=title,
            content=content,
            data=_json(content),
            links=links,
            pages=PAGES,
            live=not links.suffix,
            store=store,
        )
    )


def static_files() -> dict[str, Path]:
    """The styles and scripts of the pages, by name. Raises `UserError` if plotly is not installed."""
    import plotly

    page: Path = component("reports.render.html").FOLDER
    return {
        "report.css": page / "page.css",
        "tables.js": page / "tables.js",
        "view.css": FOLDER / "view.css",
        "view.js": FOLDER / "view.js",
        "plotly.js": Path(plotly.__file__).parent / "package_data" / "plotly.min.js",
    }


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def _json(document: Any) -> Any:
    """JSON for a script element, escaped so that it cannot end the element."""
    from markupsafe import Markup

    return Markup(json.dumps(document, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"))
