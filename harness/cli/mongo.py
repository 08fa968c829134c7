"""`harness mongo`: a private MongoDB server on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli._help import Group

if TYPE_CHECKING:
    from harness.stores.server.mongod import Server

data_option = click.option(
    "--data",
    envvar="HARNESS_MONGO_DATA",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("mongo"),
    help="Folder of the server.  [default: HARNESS_MONGO_DATA, else ./mongo]",
)


@click.group(cls=Group, example="harness mongo start")
def command() -> None:
    """Start, stop and inspect a private MongoDB server.

    The server listens on this machine only and has no password: every user of this machine can access it. For a
    shared server, see compose.yaml.
    """


@command.command(example="harness mongo start")
@data_option
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Port to listen on.  [default: the last port used, else 27017, else a free one]",
)
@click.option(
    "--wait", default=60.0, show_default=True, type=click.FloatRange(0), help="Seconds to wait for the server to start."
)
def start(data: Path, port: int | None, wait: float) -> None:
    """Start the server. It keeps running when the terminal is closed.

    Prints the `export` line that makes other commands use the server; `eval "$(harness mongo start)"` does both.
    """
    from harness.stores.server import mongod

    server, fresh = mongod.start(data, port, wait=wait)
    told = "started" if fresh else "already runs"
    click.echo(f"mongod {told} on {server.data}, process {server.pid}, port {server.port}", err=True)
    click.echo(f"export HARNESS_MONGO={server.uri}")


@command.command(example="harness mongo stop")
@data_option
@click.option(
    "--wait", default=60.0, show_default=True, type=click.FloatRange(0), help="Seconds to wait for the server to end."
)
def stop(data: Path, wait: float) -> None:
    """Shut the server down cleanly; its data are kept."""
    from harness.stores.server import mongod

    server = mongod.stop(data, wait=wait)
    click.echo(f"no server runs on {data.absolute()}" if server is None else f"mongod stopped, process {server.pid}")


@command.command(example="harness mongo status")
@data_option
def status(data: Path) -> int:
    """Show whether the server is running, its address and its contents. Exits 0 if it is running, else 1."""
    from harness.stores.server import mongod

    server = mongod.read(data)
    if server is None or not server.running:
        there = f", but maybe on {server.host}" if server and server.elsewhere else "; `harness mongo start` starts one"
        click.echo(f"no server runs here on {data.absolute()}{there}")
        return 1
    _show(
        {
            "running": f"process {server.pid}",
            "port": str(server.port),
            "address": server.uri,
            "data": str(server.data),
            "log": str(server.log),
        }
    )
    from pymongo.errors import PyMongoError

    try:
        _show_contents(server)
    except PyMongoError as error:
        click.echo(f"the server does not answer: {error}")
        return 1
    return 0


def _show_contents(server: Server) -> None:
    """Print the version, the number of runs, and the sizes of all collections except MongoDB's own."""
    with server.client() as client:
        version = client.server_info()["version"]
        rows = {
            (database, name): next(client[database][name].aggregate([{"$collStats": {"storageStats": {}}}]))[
                "storageStats"
            ]
            for database in client.list_database_names()
            if database not in ("admin", "config", "local")
            for name in sorted(client[database].list_collection_names(filter={"type": "collection"}))
        }
    runs = [f"{stats['count']:,} in {database}" for (database, name), stats in rows.items() if name == "runs"]
    _show({"version": version, "runs": ", ".join(runs) or "none"})
    if rows:
        width = max(len(".".join(place)) for place in rows)
        click.echo(f"\n{'collection':{width}}  {'documents':>10}  {'size':>11}  {'on disk':>11}")
    for place, stats in rows.items():
        size, on_disk = (f"{stats[key] / 1e6:,.2f} MB" for key in ("size", "totalSize"))
        click.echo(f"{'.'.join(place):{width}}  {stats['count']:>10,}  {size:>11}  {on_disk:>11}")


def _show(lines: dict[str, str]) -> None:
    for label, text in lines.items():
        click.echo(f"{label:8} {text}")
