# SPDX-License-Identifier: Apache-2.0
"""Unix sockets: the peer's credentials, and paths that only the owner may use."""

from __future__ import annotations

import os
import socket
import struct
from typing import NamedTuple

_CREDENTIALS = struct.Struct("iII")
_UNKNOWN = 0xFFFFFFFF


class Credentials(NamedTuple):
    """Credentials of a process at the time of connect(2), or of listen(2) for a listener."""

    pid: int
    uid: int
    gid: int


def credentials(connection: socket.socket) -> Credentials:
    """Return the credentials of the peer (SO_PEERCRED, unix(7)). Raises OSError without a peer."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    if len(raw) == _CREDENTIALS.size:
        found = Credentials(*_CREDENTIALS.unpack(raw))
        if found.uid != _UNKNOWN:
            return found
    raise OSError("the kernel names nobody at the other end")


def is_own(connection: socket.socket) -> bool:
    """Whether the peer has the effective uid of this process. Raises OSError."""
    return credentials(connection).uid == os.geteuid()


def bind_private(unbound: socket.socket, path: str) -> None:
    """Bind with mode 0600 from the first moment. Raises OSError.

    The file gets the mode of the socket, less the umask (Linux, net/unix/af_unix.c).
    """
    os.fchmod(unbound.fileno(), 0o600)
    unbound.bind(path)
