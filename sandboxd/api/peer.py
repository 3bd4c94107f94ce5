# SPDX-License-Identifier: Apache-2.0
"""Credentials of a Unix socket's peer, as the kernel recorded at connect(2)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection
from dataclasses import dataclass

from sandboxd.core.model import Caller
from sandboxd.osutil.unix_sockets import credentials

# asm-generic/socket.h, Linux 4.13; the socket module has no name for it.
_SO_PEERGROUPS = 59
_MAX_GROUPS = 65_536

# A caller whom the kernel does not name: owns and sees no sandbox.
NOBODY = Caller(uid=-1, gid=-1, pid=0, is_admin=False)


@dataclass(frozen=True, slots=True)
class Peer:
    """Credentials of a connected process."""

    pid: int
    uid: int
    gid: int
    groups: frozenset[int]

    def as_caller(self, admin_gids: Collection[int]) -> Caller:
        """Return the peer as a caller; root and members of an admin group are admins."""
        is_member = any(gid in self.groups or gid == self.gid for gid in admin_gids)
        return Caller(self.uid, self.gid, self.pid, is_admin=self.uid == 0 or is_member)


def read_peer(connection: socket.socket) -> Peer | None:
    """Return the peer of a connected Unix stream socket; None where the kernel does not say."""
    try:
        named = credentials(connection)
    except OSError:
        return None
    return Peer(*named, _read_groups(connection))


def _read_groups(connection: socket.socket) -> frozenset[int]:
    """Return the peer's supplementary groups, none if unreadable, which only takes rights away."""
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * 256)
    except OSError:
        try:
            raw = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * _MAX_GROUPS)
        except OSError:
            return frozenset()
    return frozenset(struct.unpack(f"{len(raw) // 4}I", raw))
