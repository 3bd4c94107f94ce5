# SPDX-License-Identifier: Apache-2.0
"""Unix sockets: who is at the other end, and a name that is its owner's alone."""

from __future__ import annotations

import os
import socket
import struct
from typing import NamedTuple

_CREDENTIALS = struct.Struct("iII")
_UNKNOWN = 0xFFFFFFFF


class Credentials(NamedTuple):
    """Of a process, from the time of connect(2), or of listen(2) for who listens."""

    pid: int
    uid: int
    gid: int


def credentials(connection: socket.socket) -> Credentials:
    """The kernel's word on the other end (SO_PEERCRED, unix(7)). Raises OSError without one."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    if len(raw) == _CREDENTIALS.size:
        found = Credentials(*_CREDENTIALS.unpack(raw))
        if found.uid != _UNKNOWN:
            return found
    raise OSError("the kernel names nobody at the other end")


def is_own(connection: socket.socket) -> bool:
    """Whether the process at the other end has the uid of this one. Raises OSError."""
    return credentials(connection).uid == os.geteuid()


def bind_private(unbound: socket.socket, path: str) -> None:
    """Bind with mode 0600, from the first moment on. Raises OSError.

    At start-up alone: the mask is the process', so that threads would make files by it as well.
    """
    mask = os.umask(0o177)
    try:
        unbound.bind(path)
    finally:
        os.umask(mask)
