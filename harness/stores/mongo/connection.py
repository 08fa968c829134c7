"""Connects to the database, and reports its errors: in one line, and never with a password.

Knows nothing of what is kept in a database.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus
from weakref import WeakKeyDictionary

import bson.errors
import gridfs.errors
import pymongo
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    InvalidURI,
    OperationFailure,
    PyMongoError,
)
from pymongo.uri_parser import parse_uri

from harness.errors import DataError, Unreachable, UserError

Document = dict[str, Any]

DEFAULT_DATABASE = "nas"

SOCKET_TIMEOUT = 30_000
"""Milliseconds that one answer of the server may take, unless the address sets another limit."""

_ADDRESS = re.compile(
    r"(?P<scheme>mongodb(?:\+srv)?://)(?:(?P<user>[^:@/?]*)(?::(?P<password>[^:@/?]*))?@)?"
    r"(?P<hosts>[^@/?]+)(?P<database>/[^@/?]*)?(?P<options>\?[^@]*)?"
)
"""Allows no @ except the one after the password: an address with more of them counts as malformed."""

_SECRET_OPTIONS = re.compile(r"[?&](?:tlsCertificateKeyFilePassword|authMechanismProperties)=([^&]+)", re.IGNORECASE)

_REFUSED = {13: "permission denied", 18: "authentication failed", 8000: "authentication failed"}
"""Meaning of the server's error codes for users that it refuses."""

_COMMAND = re.compile(r" to execute command \{ *(\w+(?:: \"[\w.]+\")?).*")
"""In an error of the server: the command, with its name first, and the collection."""

NOT_SHOWN = "the reason is not shown because it might contain a password"

_DISK_FULL, _TIME_EXPIRED = 14031, 50

STOPPED = (
    "Start the server (`harness mongo start`), or read the directory with `--store runs`; without HARNESS_MONGO and "
    "--mongo no database is used."
)
PARTS = 3
"""Steps in which the driver closes a connection."""

_shown: WeakKeyDictionary[MongoClient[Document], str] = WeakKeyDictionary()


def connect(uri: str, timeout: float = 5.0) -> Database[Document]:
    """Connect to the database that the address names, by default `nas`, and check that it answers.

    Takes little more than `timeout` seconds, even if no server answers. Raises `UserError` for an invalid address
    and for a user without permission to read, `Unreachable` if no server answers.
    """
    if _ADDRESS.fullmatch(uri) is None:  # the driver would take a part of the password for a host
        raise UserError(f"{shown(uri)} is not a database address: {_mistake(uri)}")
    _quieten_threads()
    milliseconds = int(timeout * 1000)
    defaults = {
        "serverSelectionTimeoutMS": milliseconds,
        "connectTimeoutMS": milliseconds,
        "socketTimeoutMS": SOCKET_TIMEOUT,
    }
    given = uri.lower()
    settings: dict[str, Any] = {key: value for key, value in defaults.items() if f"{key.lower()}=" not in given}
    client: MongoClient[Document] | None = None
    try:
        # The client only warns of options that it does not understand, and would continue, for example, without TLS.
        parse_uri(uri.replace("mongodb+srv://", "mongodb://", 1), warn=False)
        client = MongoClient(uri, tz_aware=False, **settings)
        database = client.get_default_database(DEFAULT_DATABASE)
        with pymongo.timeout(timeout):
            # A read checks more than a ping: also the permission of the user.
            database["runs"].find_one({}, {"_id": 1})
        _shown[client] = shown(uri)
        return database
    except (PyMongoError, bson.errors.BSONError, LookupError, ValueError, TypeError, OSError) as error:
        if client is not None:
            disconnect(client)
        text = hide(_line(error), uri)
        if isinstance(error, bson.errors.BSONError | LookupError):
            problem: Exception = Unreachable(f"{shown(uri)} does not answer as a database does: {text}")
        elif isinstance(error, InvalidURI | ConfigurationError) or not isinstance(error, PyMongoError):
            problem = UserError(f"{shown(uri)} is not a database address: {text}")
        elif isinstance(error, OperationFailure) and error.code in _REFUSED:
            problem = UserError(f"{shown(uri)}: {_REFUSED[error.code]}: {text}")
        elif isinstance(error, OperationFailure):
            problem = UserError(f"{shown(uri)}: {text}")
        else:
            problem = Unreachable(f"{shown(uri)} does not answer: {text}")
            problem.add_note(STOPPED)
    raise problem  # outside of the handler, so that the driver's own error and its text are not chained to it


def disconnect(client: MongoClient[Document]) -> None:
    """Close a connection, whatever the server says to it."""
    for _ in range(PARTS):
        # The driver ends sessions, then cursors, then the connection; it stops where a reply is damaged.
        with contextlib.suppress(Exception):
            client.close()
            return


def address(database: Database[Document]) -> str:
    """The name of the database in messages; without a password."""
    known = _shown.get(database.client)
    if known is None:
        servers = sorted(database.client.topology_description.server_descriptions())
        known = "mongodb://" + ",".join(f"{host}:{port}" for host, port in servers)
    scheme, _, rest = known.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/{database.name}"


def shown(uri: str) -> str:
    """The address as messages may show it: without password and options; a malformed one is hidden."""
    found = _ADDRESS.fullmatch(uri)
    if found is None:
        return "mongodb+srv://…" if uri.startswith("mongodb+srv:") else "mongodb://…"
    user = f"{found['user']}@" if found["user"] else ""
    return f"{found['scheme']}{user}{found['hosts']}{found['database'] or ''}"


def hide(text: str, uri: str) -> str:
    """The text, or `NOT_SHOWN` if it contains a secret of that address, in any encoding.

    A secret is not just masked: the rest of a known sentence could reveal it.
    """
    text = text.replace(uri, shown(uri))
    return NOT_SHOWN if any(secret in text for secret in _secrets(uri)) else text


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Translate errors of the driver into ours, in one line and without credentials.

    `Unreachable` when the server does not answer or cannot serve now, `UserError` when it refuses the user,
    `DataError` for data that cannot be stored or read as it is.
    """
    try:
        yield
        return
    except (PyMongoError, bson.errors.BSONError, gridfs.errors.GridFSError, OverflowError) as error:
        problem = _translate(error)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        if not _is_drivers(error):
            raise
        problem = DataError(f"{_FOREIGN}: {type(error).__name__}: {_line(error)}")
    raise problem


_FOREIGN = "the database does not answer as a database does"


@cache
def _quieten_threads() -> None:
    """Show no traceback of a thread of the driver that a reply has ended: whatever is asked next says what is wrong."""
    before = threading.excepthook

    def show(thread: threading.ExceptHookArgs) -> None:
        if thread.exc_value is None or not _is_drivers(thread.exc_value):
            before(thread)

    threading.excepthook = show


def _is_drivers(error: BaseException) -> bool:
    """Whether the driver itself failed, which believes what a server says."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    module = str(place.tb_frame.f_globals.get("__name__")) if place else ""
    return module.partition(".")[0] in ("pymongo", "bson", "gridfs")


def _translate(error: Exception) -> Exception:
    text = _line(error)
    if isinstance(error, BulkWriteError):
        failures = [*error.details.get("writeErrors", ()), *error.details.get("writeConcernErrors", ())]
        codes = {failure.get("code") for failure in failures}
        text = next((str(failure["errmsg"]) for failure in failures if "errmsg" in failure), text)
    else:
        codes = {error.code} if isinstance(error, OperationFailure) else set()
    if refused := codes & _REFUSED.keys():
        return UserError(f"the database refuses: {_REFUSED[refused.pop()]}: {text}")
    timed_out = isinstance(error, PyMongoError) and error.timeout
    if isinstance(error, ConnectionFailure) or timed_out or codes & {_DISK_FULL, _TIME_EXPIRED}:
        return Unreachable(f"the database does not answer: {text}")
    if isinstance(error, DocumentTooLarge):
        return DataError(f"too large for the database: {text}")
    if isinstance(error, bson.errors.BSONError | gridfs.errors.GridFSError | OverflowError):
        return DataError(f"cannot be stored or read as it is: {text}")
    return DataError(f"the database answers with an error: {text}")


def _line(error: BaseException) -> str:
    """The first line, without the driver's details about its settings and servers."""
    line = " ".join((str(error).splitlines() or [""])[0].split())
    for rest in (
        " (configured timeouts",
        ", Timeout:",
        ", full error:",
        ", Topology Description:",
    ):
        line = line.partition(rest)[0]
    line = _COMMAND.sub(r" to execute \1", line)  # the name of the command is that of the missing right, or nearly
    return line[:500] or type(error).__name__


def _mistake(uri: str) -> str:
    """What is wrong with a malformed address, without quoting any part of it."""
    rest = uri.partition("://")[2]
    if "@" in rest:
        return "user and password must be percent-encoded (%40 for @, %3A for :, %2F for /, %3F for ?)"
    if not re.match("[^/?]", rest):
        return "it names no host"
    return "only /DATABASE and ?OPTIONS can follow the hosts"


def _secrets(uri: str) -> set[str]:
    found = _ADDRESS.fullmatch(uri)
    if found is not None:
        raw = {found["password"] or ""}
    else:  # malformed: all between the first colon after the scheme and the last @ may be the password, or a part
        inside = uri.partition("://")[2].rpartition("@")[0].partition(":")[2]
        raw = {inside, *re.split(r"[:@/?]", inside)}
    raw |= set(_SECRET_OPTIONS.findall(uri))
    spellings = {spell(text) for text in raw for spell in (str, unquote, unquote_plus)}
    return {spell(text) for text in spellings for spell in (str, quote, quote_plus)} - {""}
