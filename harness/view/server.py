"""Serves the pages on this machine: read-only, for whoever has the token, and for nobody else.

Only GET and HEAD are answered. A request needs the token (as a parameter once, then as a cookie), a Host header that
names this server, and must not come from another site's page. Nothing can be changed or deleted.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from harness.errors import HarnessError, InvalidConfiguration, UnknownName, UserError
from harness.view import content
from harness.view.site import Links, render, static_files

if TYPE_CHECKING:
    from harness.stores.store import Store
    from harness.stores.stored import StoredRun
    from harness.view.snapshot import Snapshot, Watcher

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

COOKIE = "harness-view"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache, private",
}
KEPT = 32
"""Sections of studies that are kept; rendering one takes a second or two."""


class Guard:
    """Rejects requests that nobody at this machine's browser can have meant, and adds headers to all answers."""

    def __init__(self, app: Any, token: str, hosts: frozenset[str]) -> None:
        self.app, self.token, self.hosts = app, token, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                added = [(n.encode(), v.encode()) for n, v in HEADERS.items() if n.encode() not in own]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        request = Request(scope)
        answer = self._refusal(request) or self._entrance(request) or self.app
        await answer(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("this server only shows runs: GET and HEAD", 405, {"allow": "GET, HEAD"})
        if request.headers.get("host", "").lower() not in self.hosts:
            return PlainTextResponse("this address is not the server's: use the one that it printed", 403)
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and not _navigates(request):
            return PlainTextResponse("a page of another site asked for this", 403)
        given = request.query_params.get("token") or request.cookies.get(COOKIE) or ""
        if not secrets.compare_digest(given.encode(), self.token.encode()):
            return PlainTextResponse("open the address that `harness view` printed: it contains the token", 403)
        return None

    def _entrance(self, request: Request) -> Response | None:
        """For an address with the token: the same without it, and a cookie in its place."""
        if "token" not in request.query_params:
            return None
        rest = [(name, text) for name, text in request.query_params.multi_items() if name != "token"]
        answer = RedirectResponse(request.url.path + (f"?{urlencode(rest)}" if rest else ""), 303)
        answer.set_cookie(COOKIE, self.token, httponly=True, samesite="strict", path="/")
        return answer


def _navigates(request: Request) -> bool:
    """Whether somebody follows a link; the cookie is not sent with it, so it needs the token."""
    return request.headers.get("sec-fetch-mode") == "navigate"


class Pages:
    """The routes. Details of runs are read by one thread at a time; lists come from the newest snapshot."""

    def __init__(self, watcher: Watcher, store: Store) -> None:
        self.watcher, self.store = watcher, store
        self._lock = threading.Lock()
        self._sections: dict[tuple[str, str], tuple[int, dict[str, Any]]] = {}

    def routes(self) -> list[Route]:
        pages = {
            "/": self.studies,
            "/study/{preset}/{name}": self.study,
            "/runs": self.runs,
            "/run/{run}": self.run,
            "/compare": self.compare,
            "/data/studies": self.studies,
            "/data/study/{preset}/{name}": self.study,
            "/data/runs": self.runs,
            "/data/run/{run}": self.run,
            "/data/log/{run}": self.log,
            "/data/curves": self.curves,
            "/data/diff": self.diff,
            "/figure/curves.{form}": self.figure,
            "/file/{run}/{name:path}": self.file,
            "/static/{name}": self.static,
        }
        return [Route(path, answering(function), methods=["GET"]) for path, function in pages.items()]

    # Pages, and the data that a page asks for again.

    def studies(self, request: Request) -> Response:
        snapshot = self.watcher.look()
        with self._lock:
            found = content.studies(snapshot, self.store)
        return self._answer(request, "studies", "Studies", found)

    def study(self, request: Request) -> Response:
        preset, name = request.path_params["preset"], request.path_params["name"]
        snapshot = self.watcher.look()
        return self._answer(request, "study", name, self._section(snapshot, name, preset))

    def _section(self, snapshot: Snapshot, name: str, preset: str) -> dict[str, Any]:
        with self._lock:
            known = self._sections.get((name, preset))
            if known is None or known[0] != snapshot.version:
                known = snapshot.version, content.study(snapshot, self.store, name, preset)
                self._sections[name, preset] = known
                while len(self._sections) > KEPT:
                    self._sections.pop(next(iter(self._sections)))
        return known[1]

    def runs(self, request: Request) -> Response:
        try:
            found = self._runs(request)
        except InvalidConfiguration as error:  # somebody types a condition: an answer, not a failure
            found = {**content.runs(self.watcher.look()), "wrong": str(error)}
        return self._answer(request, "runs", "Runs", found)

    def _runs(self, request: Request) -> dict[str, Any]:
        query = request.query_params
        columns = [name for name in query.get("columns", "").split(",") if name]
        since = query.get("since", "0")
        return content.runs(
            self.watcher.look(),
            columns,
            int(since) if since.isdecimal() else 0,
            query.get("where", ""),
            query.get("seen", ""),
        )

    def run(self, request: Request) -> Response:
        snapshot = self.watcher.look()
        with self._lock:
            found = content.run(snapshot, self.store, request.path_params["run"])
        return self._answer(request, "run", f"Run {found['id']}", found)

    def compare(self, request: Request) -> Response:
        """The script asks for the runs, one by one."""
        return self._answer(request, "compare", "Compare", {"runs": request.query_params.getlist("run")})

    # Data alone.

    def log(self, request: Request) -> Response:
        after = request.query_params.get("after", "-1")
        with self._lock:
            found = content.log(self.store, self._run(request), int(after) if after.isdecimal() else -1)
        return _json(request, found)

    def curves(self, request: Request) -> Response:
        return _json(request, self._curves(request))

    def _curves(self, request: Request) -> dict[str, Any]:
        query, snapshot = request.query_params, self.watcher.look()
        metric, axis = query.get("metric", content.MAIN_CURVE), query.get("axis", "step")
        with self._lock:
            if "study" in query:
                place = (query["study"], query.get("preset", ""))
                return content.study_curves(snapshot, self.store, *place, metric, axis)
            return content.chosen_curves(snapshot, self.store, query.getlist("run"), metric, axis)

    def diff(self, request: Request) -> Response:
        query = request.query_params
        with self._lock:
            one, other = (self._find(query.get(name, "")) for name in ("one", "other"))
            found = content.source_diff(self.store, one, other, query.get("name", ""))
        return _json(request, {"diff": found})

    # Files.

    def figure(self, request: Request) -> Response:
        form = request.path_params["form"]
        if form not in ("svg", "pdf"):
            raise UnknownName.among("format", form, ("svg", "pdf"))
        curves = self._curves(request)
        drawn = content.figure(curves, request.query_params.get("band", "t"), form)
        kind = {"svg": "image/svg+xml", "pdf": "application/pdf"}[form]
        return Response(drawn, media_type=kind, headers=_attachment(f"curves.{form}"))

    def file(self, request: Request) -> Response:
        """A file of a run, to download: only names that the store lists."""
        name = request.path_params["name"]
        with self._lock:
            run = self._run(request)
            if name not in self.store.files(run):
                raise UnknownName.among("file", name, self.store.files(run))
            found = self.store.read(run, name)
        return Response(found, media_type="application/octet-stream", headers=_attachment(name.rpartition("/")[2]))

    def static(self, request: Request) -> Response:
        files = static_files()
        name = request.path_params["name"]
        if name not in files:
            raise UnknownName.among("file", name, files)
        kind = "text/css" if name.endswith(".css") else "text/javascript"
        return FileResponse(files[name], media_type=kind, headers={"cache-control": "private, max-age=3600"})

    def _run(self, request: Request) -> StoredRun:
        return self._find(request.path_params["run"])

    def _find(self, run: str) -> StoredRun:
        known = self.watcher.now.rows.get(run)
        return known.run if known else self.store.find(run)

    def _answer(self, request: Request, kind: str, title: str, found: dict[str, Any]) -> Response:
        """A page with its data inside, or the data alone."""
        found = {**found, "trouble": self.watcher.now.trouble}
        if request.url.path.startswith("/data/"):
            return _json(request, found)
        return Response(render(kind, title, found, Links(), self.store.name), media_type="text/html")


def answering(function: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """The route with errors as answers: 404 for what is not there, 400 for a mistake, each with its message."""

    def answer(request: Request) -> Response:
        try:
            return function(request)
        except (UnknownName, KeyError) as error:
            status, text = 404, str(error)
        except UserError as error:
            status, text = 400, str(error)
        except HarnessError as error:
            status, text = 503, str(error)
        if request.url.path.startswith("/data/"):
            return JSONResponse({"error": text}, status)
        return PlainTextResponse(text, status)

    return answer


def _json(request: Request, document: Any) -> Response:
    """JSON with an ETag of its content; nothing but the header if the page has the same already."""
    body = json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=str).encode()
    tag = f'W/"{hashlib.sha256(body).hexdigest()[:20]}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"etag": tag})
    return Response(body, media_type="application/json", headers={"etag": tag})


def _attachment(name: str) -> dict[str, str]:
    plain = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
    return {"content-disposition": f'attachment; filename="{plain}"'}


def application(watcher: Watcher, store: Store, token: str, hosts: frozenset[str]) -> Starlette:
    """The whole server. `hosts` are the values of the Host header that it answers to."""
    guards = [Middleware(Guard, token=token, hosts=hosts), Middleware(GZipMiddleware, minimum_size=2048)]
    made = Starlette(routes=Pages(watcher, store).routes(), middleware=guards)
    made.router.redirect_slashes = False
    return made


def hosts_of(bind: str, port: int) -> frozenset[str]:
    """The Host headers of a server that listens on that address; on all addresses, by the machine's names."""
    import socket

    names = {bind, "127.0.0.1", "localhost", "[::1]"}
    if bind in ("0.0.0.0", "::"):
        names |= {socket.gethostname(), socket.getfqdn()}
    return frozenset(f"{name.lower()}:{port}" for name in names)
