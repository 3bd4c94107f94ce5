# SPDX-License-Identifier: Apache-2.0
"""The history in <state-dir>/history.sqlite; fits ports.store.HistoryStore.

SQLite, since an interval and the amounts counted until the interval's end have to be saved in one
transaction whatever kills the daemon, and since deleted rows make room for new rows: the file stops
growing. An unreadable file is set aside as *.unreadable; a newer sandboxd's file is left unchanged.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sandboxd.core.totals import GAINS, Interval, SavedHistory, UsageTotals
from sandboxd.errors import host_lacks
from sandboxd.osutil.files import touch

if TYPE_CHECKING:
    import sqlite3

_log = logging.getLogger(__name__)
_FILE = "history.sqlite"
_VERSION = 1
_TABLES = """
CREATE TABLE known (since TEXT NOT NULL);
CREATE TABLE intervals (number INTEGER PRIMARY KEY, begun TEXT NOT NULL, by_owner TEXT NOT NULL);
CREATE TABLE counted (
    sandbox TEXT NOT NULL, execution TEXT NOT NULL, amounts TEXT NOT NULL,
    PRIMARY KEY (sandbox, execution)
);
"""
# A backup may hold a read lock for a moment; no process but the daemon writes the file.
_BUSY_SECONDS = 5.0


class DiskHistory:
    """The history file of one state directory. kept: the greatest number of intervals."""

    def __init__(self, state_directory: str, *, kept: int) -> None:
        self._path = os.path.join(state_directory, _FILE)
        self._kept = kept

    async def load(self) -> SavedHistory | None:
        return await asyncio.to_thread(self._load)

    async def save(self, past: SavedHistory) -> None:
        await asyncio.to_thread(self._save, past)

    def _load(self) -> SavedHistory | None:
        import sqlite3

        if not os.path.exists(self._path):
            return None
        try:
            with self._connected() as database:
                return _read(database)
        except (OSError, sqlite3.OperationalError) as exc:
            # SQLITE_ERROR: missing or different tables. The remaining operational errors have an
            # outside or passing cause (a lock, a full disk), and the file may be of use yet.
            if getattr(exc, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR:
                self._set_aside(exc)
            else:
                _log.error("Cannot read %s: %s", self._path, exc)
        except (sqlite3.Error, ValueError, KeyError, TypeError, AttributeError) as exc:
            self._set_aside(exc)
        return None

    def _set_aside(self, cause: Exception) -> None:
        _log.error("Cannot read %s: %s; set aside", self._path, cause)
        with suppress(OSError):
            os.rename(self._path, f"{self._path}.unreadable")

    def _save(self, past: SavedHistory) -> None:
        import sqlite3

        try:
            with self._connected() as database:
                self._write(database, past)
        except sqlite3.Error as exc:
            numbers = {
                sqlite3.SQLITE_FULL: errno.ENOSPC,
                sqlite3.SQLITE_READONLY: errno.EROFS,
                sqlite3.SQLITE_IOERR: errno.EIO,
            }
            # Extended result codes: the low byte is the primary code (sqlite.org/rescode.html).
            number = numbers.get(getattr(exc, "sqlite_errorcode", 0) & 0xFF)
            cause = OSError(str(exc)) if number is None else OSError(number, str(exc))
            raise host_lacks("cannot write the history", cause, self._path) from exc
        except OSError as exc:
            raise host_lacks("cannot write the history", exc, self._path) from exc

    def _write(self, database: sqlite3.Connection, past: SavedHistory) -> None:
        with _transaction(database):
            database.execute("DELETE FROM known")
            database.execute("INSERT INTO known VALUES (?)", [past.known_since.isoformat()])
            database.executemany(
                "INSERT INTO intervals (begun, by_owner) VALUES (?, ?)",
                [(one.begun.isoformat(), _dump(one)) for one in past.intervals],
            )
            database.execute(
                "DELETE FROM intervals WHERE number <= (SELECT max(number) FROM intervals) - ?",
                [self._kept],
            )
            database.execute("DELETE FROM counted")
            database.executemany(
                "INSERT INTO counted VALUES (?, ?, ?)",
                [(*key, json.dumps(list(amounts))) for key, amounts in past.counted.items()],
            )

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        import sqlite3

        # SQLite makes the journal file with the mode of the database file.
        touch(self._path)
        with closing(
            sqlite3.connect(self._path, timeout=_BUSY_SECONDS, isolation_level=None)
        ) as database:
            # SQLite makes temporary files in /var/tmp or /tmp, which every user shares.
            database.execute("PRAGMA temp_store = MEMORY")
            # By default sqlite3 raises OperationalError, as for a full disk, on invalid UTF-8.
            database.text_factory = bytes.decode
            yield database


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Commit the block or nothing, tables made. Raises OperationalError for a newer file."""
    with database:
        database.execute("BEGIN IMMEDIATE")
        _prepare(database)
        yield


def _prepare(database: sqlite3.Connection) -> None:
    import sqlite3

    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > _VERSION:
        raise sqlite3.OperationalError(f"it is of version {version}, newer than {_VERSION}")
    if version == 0:
        for statement in _TABLES.strip().removesuffix(";").split(";\n"):
            database.execute(statement)
        database.execute(f"PRAGMA user_version = {_VERSION}")


def _read(database: sqlite3.Connection) -> SavedHistory | None:
    with _transaction(database):
        known = database.execute("SELECT since FROM known").fetchone()
        intervals = database.execute("SELECT begun, by_owner FROM intervals ORDER BY number")
        whole = [Interval(datetime.fromisoformat(begun), _parse(text)) for begun, text in intervals]
        rows = database.execute("SELECT sandbox, execution, amounts FROM counted").fetchall()
    if known is None:
        return None
    counted = {(row[0], row[1]): [float(amount) for amount in json.loads(row[2])] for row in rows}
    if any(len(amounts) != len(GAINS) for amounts in counted.values()):
        raise ValueError("amounts are not those of today")
    times = [datetime.fromisoformat(known[0]), *(interval.begun for interval in whole)]
    if any(time.tzinfo is None for time in times):
        raise ValueError("a time has no zone")
    return SavedHistory(times[0], whole, counted)


def _dump(interval: Interval) -> str:
    names = (*GAINS, "memory_bytes", "executions")
    return json.dumps(
        {
            uid: {name: getattr(totals, name) for name in names}
            | {"ended": totals.ended, "refused": totals.refused}
            for uid, totals in interval.by_owner.items()
        },
        separators=(",", ":"),
    )


def _parse(text: str) -> dict[int, UsageTotals]:
    return {int(uid): _totals(**fields) for uid, fields in json.loads(text).items()}


def _totals(*, ended: dict[str, int], refused: dict[str, int], **amounts: Any) -> UsageTotals:
    return UsageTotals(**amounts, ended=Counter(ended), refused=Counter(refused))
