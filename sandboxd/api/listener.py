# SPDX-License-Identifier: Apache-2.0
"""The API's Unix socket and the group that may connect."""

from __future__ import annotations

import errno
import grp
import os
import socket
import stat
from contextlib import suppress

from sandboxd.errors import ConfigError
from sandboxd.osutil.unix_sockets import bind_private

_MAX_PATH_BYTES = 107


def group_id(setting: str, name: str | None) -> int | None:
    """Return the gid of the group `name`, None without a name. Raises ConfigError if unknown."""
    if name is None:
        return None
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError as exc:
        raise ConfigError(f"cannot use {setting} {name!r}: there is no such group") from exc


def listen(path: str, *, gid: int | None, named_by: str) -> socket.socket:
    """Return a listening socket bound to `path`, mode 0600, or 0660 for a group.

    named_by: the origin of the path, for a hint. A stale socket at the path is replaced. Raises
    ConfigError for any other file at the path, a socket in use, or a path that is too long.
    """
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise ConfigError(
            f"cannot listen on {path}: a Unix socket's path has at most {_MAX_PATH_BYTES} bytes"
        )
    _remove_stale(path, f"the path is that of {named_by}: name another there")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    is_bound = False
    try:
        bind_private(listener, path)
        is_bound = True
        if gid is not None:
            os.chown(path, -1, gid)
            os.chmod(path, 0o660)
    except OSError as exc:
        listener.close()
        if is_bound:
            os.unlink(path)
        raise ConfigError(f"cannot listen on {path}: {exc.strerror}") from exc
    listener.setblocking(False)
    return listener


def _remove_stale(path: str, hint: str) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise ConfigError(f"cannot listen on {path}: it is there and is no socket", hint=hint)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            if probe.connect_ex(path) != errno.ECONNREFUSED:
                raise ConfigError(f"cannot listen on {path}: another process does", hint=hint)
        os.unlink(path)
