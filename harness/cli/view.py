"""`harness view`: a live page over the store in a browser, or the same pages as a static site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli._completion import studies as complete_studies
from harness.cli._help import Command
from harness.cli._options import store_option
from harness.errors import UserError
from harness.stores.places import Places

if TYPE_CHECKING:
    from harness.study.study import Study
    from harness.view.snapshot import Snapshot, Standing, Watcher


@click.command("view", cls=Command, example="harness view mine")
@click.argument("names", metavar="[STUDY]...", nargs=-1, shell_complete=complete_studies)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on.  [default: a free one]")
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address to listen on; other machines need it.")
@click.option("--export", "folder", type=click.Path(path_type=Path), help="Write a static site to this folder instead.")
@store_option
def command(names: tuple[str, ...], port: int, bind: str, folder: Path | None, store: Places) -> None:
    """Show studies, runs and curves in a browser, live.

    STUDY is a study file or the name of a known study; by default all studies that have runs. The page is read-only and
    needs the token in the printed address. While it is open, it reads the store every few seconds: runs of this
    machine, workers, SLURM and Ray appear.
    """
    from harness.study.catalogue import all_studies, find_studies

    _require_installed()
    from harness.view.snapshot import Watcher

    def studies() -> Sequence[Study]:
        return [study for name in names for study in find_studies(name)] if names else all_studies()

    studies()  # a wrong name is an error now, not in the browser
    watcher = Watcher(store.open(), studies)
    if folder is not None:
        _export(watcher, store, folder)
        return
    _serve(watcher, store, bind, port)


def _require_installed() -> None:
    from importlib.util import find_spec

    if missing := [name for name in ("starlette", "uvicorn", "plotly") if find_spec(name) is None]:
        raise UserError(f"{', '.join(missing)} is not installed: pip install 'nas-harness[view]'")


def _export(watcher: Watcher, store: Places, folder: Path) -> None:
    from rich.progress import Progress

    from harness.view.export import export

    snapshot: Snapshot = watcher.refresh()
    if snapshot.trouble:
        raise UserError(snapshot.trouble)
    if not snapshot.rows:
        raise UserError(f"{store.directory} holds no runs: there is nothing to export")
    standings: list[Standing] = list(snapshot.standings)
    with Progress(transient=True) as progress:
        task = progress.add_task("pages", total=None)
        pages = export(
            snapshot,
            store.open(),
            folder,
            standings,
            lambda done, total: progress.update(task, completed=done, total=total),
        )
    click.echo(f"wrote {pages} pages; open {folder / 'index.html'}")


def _serve(watcher: Watcher, store: Places, bind: str, port: int) -> None:
    import secrets
    import socket

    import uvicorn

    from harness.view.server import application, hosts_of

    try:
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((bind, port))
        listening.listen()  # an early request waits instead of being refused
    except OSError as error:
        raise UserError(f"cannot listen on {bind}, port {port}: {error.strerror or error}") from error
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    watcher.start()
    made = application(watcher, store.open(), token, hosts_of(bind, port))
    click.echo(f"http://{f'[{bind}]' if ':' in bind else bind}:{port}/?token={token}")
    click.echo("open this address in a browser; Ctrl-C ends the server", err=True)
    server = uvicorn.Server(uvicorn.Config(made, log_level="warning", access_log=False, timeout_graceful_shutdown=1))
    server.run(sockets=[listening])
