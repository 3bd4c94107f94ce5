# SPDX-License-Identifier: Apache-2.0
"""READY=1 from a helper that may import little (sd_notify(3)); the daemon uses pystemd."""

from __future__ import annotations

import os
import socket


def notify_ready() -> None:
    """Tell the service manager, if NOTIFY_SOCKET is set; children do not inherit the variable."""
    address = os.environ.pop("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.connect("\0" + address[1:] if address[0] == "@" else address)
            notify.send(b"READY=1")
