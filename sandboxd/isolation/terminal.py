# SPDX-License-Identifier: Apache-2.0
"""A command's terminal, opened by the child in the command's mount namespace.

So the terminal has a name there. The shim gets both ends through a socket (pty(7), ioctl_tty(2)).
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct

# asm-generic/ioctls.h
_TIOCSCTTY = 0x540E
_TIOCSWINSZ = 0x5414
_TIOCSPTLCK = 0x40045431
_TIOCGPTPEER = 0x5441


def take_terminal(rows: int, cols: int, uid: int | None, channel: socket.socket) -> None:
    """Make a new terminal the controlling terminal and descriptors 0 to 2 of this process.

    uid: the terminal's owner; None = this process's. Sends master and slave through `channel`. The
    caller leads a session. Raises OSError.
    """
    flags = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
    master = os.open("/dev/ptmx", flags)
    fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
    # The slave's name could be a file of another mount; TIOCGPTPEER uses no name (Linux 4.13).
    slave = fcntl.ioctl(master, _TIOCGPTPEER, flags)
    resize(slave, rows, cols)
    if uid is not None:
        os.fchown(slave, uid, -1)
    # devpts lets a group write to terminals (mode 0620).
    os.fchmod(slave, 0o600)
    fcntl.ioctl(slave, _TIOCSCTTY, 0)
    socket.send_fds(channel, [b"t"], [master, slave])
    for target in range(3):
        os.dup2(slave, target, inheritable=True)


def resize(fd: int, rows: int, cols: int) -> None:
    """Set the size of a terminal; a change sends SIGWINCH to the foreground processes."""
    fcntl.ioctl(fd, _TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
