# SPDX-License-Identifier: Apache-2.0
"""A network namespace: no interface but a loopback, up or down."""

from __future__ import annotations

import fcntl
import socket
import struct

from sandboxd.osutil import linux

# linux/sockios.h and linux/if.h; struct ifreq is 40 bytes (netdevice(7)).
_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 0x1
_REQUEST = struct.Struct("16sh22x")


def enter_new(*, loopback: bool) -> None:
    """Enter a new network namespace. loopback: whether `lo` (127.0.0.1) is up. Raises OSError."""
    linux.unshare(linux.CLONE_NEWNET)
    if loopback:
        _bring_up(b"lo")


def _bring_up(name: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, _REQUEST.pack(name, 0))
        _, flags = _REQUEST.unpack(answer)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, _REQUEST.pack(name, flags | _IFF_UP))
