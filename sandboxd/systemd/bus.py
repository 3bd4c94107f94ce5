# SPDX-License-Identifier: Apache-2.0
"""The system bus: calls to systemd with a deadline each, over a connection that may die.

The only importer of dbus_fast. At most 32 calls are in flight: dbus-daemon answers LimitsExceeded
from 128 pending replies on, and dbus-fast ends the connection when the socket's buffer is full. A
call on a dead connection would never end in dbus-fast, so the connection is checked right before
each call.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from dbus_fast import BusType, Message, MessageFlag, MessageType, Variant
from dbus_fast.aio import MessageBus
from dbus_fast.unpack import unpack_variants

from sandboxd.errors import BusUnavailable, OperationTimedOut
from sandboxd.systemd.errors import NOT_DELIVERED, from_dbus
from sandboxd.systemd.properties import Property

SYSTEMD = "org.freedesktop.systemd1"
MANAGER_PATH = "/org/freedesktop/systemd1"
MANAGER = "org.freedesktop.systemd1.Manager"
PROPERTIES = "org.freedesktop.DBus.Properties"

_DBUS = "org.freedesktop.DBus"
_DBUS_PATH = "/org/freedesktop/DBus"
_MAX_IN_FLIGHT = 32
_CONNECT_SECONDS = 10.0
_CLOSE_SECONDS = 2.0
_RETRY_PAUSES = (0.1, 0.2, 0.4, 0.8)
_MATCHES = (
    f"type='signal',sender='{SYSTEMD}',path='{MANAGER_PATH}',interface='{MANAGER}',"
    "member='JobRemoved'",
    f"type='signal',sender='{_DBUS}',path='{_DBUS_PATH}',interface='{_DBUS}',"
    f"member='NameOwnerChanged',arg0='{SYSTEMD}'",
)

_log = logging.getLogger(__name__)


class _Connection(MessageBus):
    def __init__(self) -> None:
        try:
            # dbus-fast connects here before version 5, and in connect() since.
            super().__init__(bus_type=BusType.SYSTEM, negotiate_unix_fd=True)
        except BaseException:
            self.close_files()
            raise

    async def _auth_readline(self) -> str:
        """Return a line of the handshake; dbus-fast 2.44 spins for ever at the stream's end."""
        line = b""
        while not line.endswith(b"\r\n"):
            chunk = await self._loop.sock_recv(cast("socket.socket", self._sock), 1024)
            if not chunk:
                raise EOFError("connection closed during authentication")
            line += chunk
        return line[:-2].decode()

    def close_files(self) -> None:
        """Close the socket, which dbus-fast 2.44 keeps open after disconnect()."""
        sock, stream = getattr(self, "_sock", None), getattr(self, "_stream", None)
        if sock is not None and (fd := sock.fileno()) >= 0:
            # The loop would mistake the next file of this number for the socket.
            loop = asyncio.get_running_loop()
            loop.remove_reader(fd)
            loop.remove_writer(fd)
        for file in (stream, sock):
            if file is not None:
                file.close()


def pack(properties: Sequence[Property]) -> list[list[Any]]:
    """Return properties as the a(sv) that systemd takes."""
    return [[name, Variant(signature, value)] for name, signature, value in properties]


class Bus:
    """A connection to the system bus (DBUS_SYSTEM_BUS_ADDRESS), replaced when dead.

    on_job_removed: called with (job path, unit name, result) of every job systemd removes, also
    before the reply that names the job has been seen. Signals of senders other than systemd are
    ignored.
    """

    def __init__(
        self,
        on_job_removed: Callable[[str, str, str], None],
        *,
        timeout_seconds: float = 30.0,
    ) -> None:
        self._on_job_removed = on_job_removed
        self._timeout_seconds = timeout_seconds
        self._slots = asyncio.Semaphore(_MAX_IN_FLIGHT)
        self._connecting = asyncio.Lock()
        self._connection: _Connection | None = None
        self._owner = ""
        self._present = asyncio.Event()
        self._was_present = False

    async def connect(self) -> None:
        """Connect and subscribe. Raises BusUnavailable."""
        await self._live_connection()

    async def close(self) -> None:
        """Disconnect; calls in flight end with BusUnavailable."""
        async with self._connecting:
            connection, self._connection = self._connection, None
        if connection is not None:
            await _disconnect(connection)

    async def call(
        self,
        member: str,
        signature: str = "",
        body: Sequence[Any] = (),
        *,
        subject: str,
        interface: str = MANAGER,
        fds: Sequence[int] = (),
        idempotent: bool = False,
    ) -> list[Any]:
        """Call systemd and return the reply's body, variants unpacked.

        subject: the unit or thing, for the error's text. fds: stay the caller's. idempotent: send
        again when the answer was lost. Raises BusUnavailable and OperationTimedOut (the call may or
        may not have had an effect), and the errors of `from_dbus` for an error reply.
        """
        seconds = self._timeout_seconds

        def message() -> Message:
            return Message(
                destination=SYSTEMD,
                path=MANAGER_PATH,
                interface=interface,
                member=member,
                signature=signature,
                body=list(body),
                unix_fds=list(fds),
                flags=MessageFlag.NO_AUTOSTART,
            )

        try:
            async with asyncio.timeout(seconds), self._slots:
                for pause in _RETRY_PAUSES if idempotent else ():
                    with suppress(BusUnavailable):
                        return await self._send_until_delivered(message, subject)
                    await asyncio.sleep(pause)
                return await self._send_until_delivered(message, subject)
        except TimeoutError as exc:
            raise OperationTimedOut(
                f"cannot finish {member} of {subject}: no answer in {seconds:g} seconds",
                details={"unit": subject},
            ) from exc

    async def _send_until_delivered(
        self, message: Callable[[], Message], subject: str
    ) -> list[Any]:
        """Send a call; while systemd is briefly away from the bus, wait and send again."""
        while True:
            connection = await self._live_connection()
            reply = await _send(connection, message())
            if reply.message_type is not MessageType.ERROR:
                return list(unpack_variants(reply.body))
            name = str(reply.error_name)
            if name not in NOT_DELIVERED or not self._was_present:
                raise from_dbus(name, str(reply.body[0]) if reply.body else name, subject)
            # NameOwnerChanged came before this refusal, so `_present` is clear.
            await self._present.wait()

    async def _live_connection(self) -> _Connection:
        connection = self._connection
        if connection is not None and connection.connected:
            return connection
        async with self._connecting:
            connection = self._connection
            if connection is not None and connection.connected:
                return connection
            if connection is not None:
                _log.warning("Lost the connection to the system bus, connecting again")
                self._connection = None
                await _disconnect(connection)
            self._connection = await self._open()
            return self._connection

    async def _open(self) -> _Connection:
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                connection = _Connection()
                await connection.connect()
                connection.add_message_handler(self._handle)
                for match in _MATCHES:
                    await _call_daemon(connection, "AddMatch", match)
                self._set_owner(await _owner(connection))
        except Exception as exc:  # dbus-fast documents no narrower class for a failed connect
            if connection is not None:
                await _disconnect(connection)
            raise BusUnavailable(
                f"cannot connect to the system bus: {_cause(exc)}",
                hint="is dbus-daemon or dbus-broker running?",
            ) from exc
        return connection

    def _handle(self, message: Message) -> None:
        if message.message_type is not MessageType.SIGNAL:
            return
        # Any peer may send a signal by unicast; the bus vouches for the sender's name alone.
        if message.member == "NameOwnerChanged" and message.sender == _DBUS:
            if message.body[0] == SYSTEMD:
                self._set_owner(message.body[2])
        elif message.member == "JobRemoved" and message.sender == self._owner:
            _, job, unit, result = message.body
            self._on_job_removed(job, unit, result)

    def _set_owner(self, owner: str) -> None:
        self._owner = owner
        if owner:
            self._was_present = True
            self._present.set()
        else:
            self._present.clear()


async def _send(connection: MessageBus, message: Message) -> Message:
    try:
        reply = cast("Message | None", await connection.call(message))
    except Exception as exc:
        # dbus-fast hands on any error that ended the connection; an error on a live one is a bug
        # here.
        if connection.connected:
            raise
        raise BusUnavailable(
            f"cannot call {message.member}: the bus connection was lost: {_cause(exc)}"
        ) from exc
    if reply is None:
        raise BusUnavailable(f"cannot call {message.member}: the bus connection was closed")
    return reply


async def _call_daemon(connection: MessageBus, member: str, argument: str) -> Message:
    message = Message(
        destination=_DBUS, path=_DBUS_PATH, interface=_DBUS, member=member, signature="s",
        body=[argument],
    )  # fmt: skip
    return await _send(connection, message)


async def _owner(connection: MessageBus) -> str:
    reply = await _call_daemon(connection, "GetNameOwner", SYSTEMD)
    return "" if reply.message_type is MessageType.ERROR else str(reply.body[0])


async def _disconnect(connection: _Connection) -> None:
    if connection.unique_name is not None:
        connection.disconnect()
        # Calls in flight have been told the cause already.
        with suppress(Exception):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await connection.wait_for_disconnect()  # type: ignore[no-untyped-call]
    connection.close_files()


def _cause(exc: Exception) -> str:
    return str(exc) or type(exc).__name__
