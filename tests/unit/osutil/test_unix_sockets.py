# SPDX-License-Identifier: Apache-2.0
"""Peers as the kernel names them, and names that are private at once."""

from __future__ import annotations

import os
import socket
import stat
from contextlib import closing
from pathlib import Path

import pytest

from sandboxd.osutil import unix_sockets


def test_the_kernel_names_the_other_end() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        assert unix_sockets.credentials(one) == (os.getpid(), os.getuid(), os.getgid())
        assert unix_sockets.is_own(one)


def test_an_unconnected_socket_has_no_other_end() -> None:
    with socket.socket(socket.AF_UNIX) as alone, pytest.raises(OSError, match="names nobody"):
        unix_sockets.credentials(alone)


def test_a_name_is_private_and_the_mask_as_before(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        with closing(socket.socket(socket.AF_UNIX)) as listener:
            path = tmp_path / "here"
            unix_sockets.bind_private(listener, str(path))
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with pytest.raises(OSError, match="Invalid argument"):
                unix_sockets.bind_private(listener, str(tmp_path / "there"))
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(mask)
