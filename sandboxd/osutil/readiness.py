# SPDX-License-Identifier: Apache-2.0
"""Messages to the service manager (sd_notify(3))."""

from __future__ import annotations

import os
import socket


def notify_ready() -> None:
    """Tell the service manager, if NOTIFY_SOCKET is set; children do not inherit the variable."""
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if address:
        notify(address, b"READY=1")


def notify(address: str, text: bytes) -> None:
    """Send assignments, one a line. address: of NOTIFY_SOCKET; "@" begins an abstract name.

    Raises OSError.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(text, "\0" + address[1:] if address[0] == "@" else address)
