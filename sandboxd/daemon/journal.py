# SPDX-License-Identifier: Apache-2.0
"""Log lines go to the journal, with fields, where stderr is the journal, else to stderr as text.

Protocol: systemd.io/JOURNAL_NATIVE_PROTOCOL. `journalctl -u UNIT` and `systemctl status UNIT` show
an entry of a root process that names the unit in OBJECT_SYSTEMD_UNIT (journalctl(1), -u).
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import sys
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from sandboxd.core.logs import ASKED, FIELDS, one_line

SOCKET = "/run/systemd/journal/socket"
# A datagram has to fit into the socket's buffer, 208 KiB by default (net.core.wmem_default).
_MAX_VALUE_BYTES = 32 << 10
_MAX_ENTRY_BYTES = 160 << 10
_SEND_SECONDS = 1.0
_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG = 7


def set_up(environment: Mapping[str, str]) -> None:
    """Send all log lines from now on to the journal or to stderr."""
    handler: logging.Handler = logging.StreamHandler()
    if stderr_is_journal(environment.get("JOURNAL_STREAM", "")) and os.path.exists(SOCKET):
        handler = JournalHandler(SOCKET)
    handler.setFormatter(LineFormatter("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def set_level(name: str) -> None:
    """Log sandboxd's lines from level `name` on; lines of libraries are logged from `info` on."""
    logging.getLogger("sandboxd").setLevel(name.upper())


def stderr_is_journal(stream: str) -> bool:
    """Return whether stderr is the journal's socket.

    stream: JOURNAL_STREAM, device and inode of the socket to the journal (systemd.exec(5)).
    """
    try:
        status = os.fstat(2)
    except OSError:
        return False
    return stream == f"{status.st_dev}:{status.st_ino}"


class LineFormatter(logging.Formatter):
    """Formats each message as a single line, even where hostile text has line breaks.

    A traceback is indented by two blanks, so that no line of a traceback passes for a message.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:
        return one_line(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return textwrap.indent(super().formatException(ei), "  ", lambda line: True)


class JournalHandler(logging.Handler):
    """Sends each log line as a journal entry, or as text to stderr if the journal refuses."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.settimeout(_SEND_SECONDS)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
            if record.exc_info:
                text = logging.Formatter().formatException(record.exc_info)
                message = f"{message}\n{text}"
            self._socket.sendto(entry(record, message), self._path)
        except OSError:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        self._socket.close()
        super().close()


def entry(record: logging.LogRecord, message: str) -> bytes:
    """Return a log line in the journal's native protocol, at most _MAX_ENTRY_BYTES long."""
    data = b""
    for name, value in _fields(record, message):
        field = _field(name, str(value))
        if len(data) + len(field) <= _MAX_ENTRY_BYTES:
            data += field
    return data


def _fields(record: logging.LogRecord, message: str) -> Iterator[tuple[str, object]]:
    yield "MESSAGE", message
    yield "PRIORITY", next((p for level, p in _PRIORITIES if record.levelno >= level), _DEBUG)
    yield "SYSLOG_IDENTIFIER", "sandboxd"
    yield "LOGGER", record.name
    yield "CODE_FUNC", record.funcName
    yield "CODE_LINE", record.lineno
    fields: dict[str, object] = dict(getattr(record, FIELDS, {}))
    asked = ASKED.get()
    if asked is not None:
        asking = {"REQUEST_ID": asked.request_id, "CALLER_UID": asked.uid, "CALLER_PID": asked.pid}
        fields = {**asking, **fields}
    for name, value in fields.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            yield name, one


def _field(name: str, value: str) -> bytes:
    data = value.encode(errors="replace")[:_MAX_VALUE_BYTES]
    if b"\n" in data:
        return name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
    return name.encode() + b"=" + data + b"\n"
