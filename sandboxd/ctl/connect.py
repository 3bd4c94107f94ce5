# SPDX-License-Identifier: Apache-2.0
"""The daemon for a call: the named one, the system's, or a private daemon."""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandboxd.client.calls import SOCKET_VARIABLE, Client, socket_path
from sandboxd.client.refusals import DaemonUnreachable
from sandboxd.ctl.exits import say

if TYPE_CHECKING:
    from sandboxd.ctl.interrupts import Interrupts

# Errors of connect(2) that mean no daemon, rather than no permission.
_NOBODY_THERE = (errno.ENOENT, errno.ECONNREFUSED)


def connect(arguments: argparse.Namespace) -> Client:
    """Return a client; OWNER/NAME in the arguments becomes an id. Raises SandboxNotFound."""
    client = Client(socket_path(arguments.socket))
    one = getattr(arguments, "sandbox", None)
    many = getattr(arguments, "sandboxes", [])
    if any("/" in ref for ref in (one or "", *many)):
        from sandboxd.ctl.owners import resolve

        arguments.sandbox = one and resolve(client, one)
        arguments.sandboxes = [resolve(client, ref) for ref in many]
    return client


@contextmanager
def connect_or_start(
    arguments: argparse.Namespace, interrupts: Interrupts, *, quiet: bool
) -> Iterator[Client]:
    """Give a client as `connect` does, or of a private daemon if no daemon answers.

    Raises DaemonUnreachable if a socket was named, or if the caller may not use the socket.
    """
    client = connect(arguments)
    try:
        client.reach()
    except DaemonUnreachable as exc:
        is_named = bool(arguments.socket or os.environ.get(SOCKET_VARIABLE))
        if not is_named and exc.number == errno.EACCES:
            no_other = "no private daemon is started instead: it would be the weaker one"
            exc.hint = f"{exc.hint}; {no_other}"
        if not arguments.socket and is_named and exc.number in _NOBODY_THERE:
            exc.hint = f"{exc.hint}; or unset {SOCKET_VARIABLE} for a private daemon"
        if is_named or exc.number not in _NOBODY_THERE:
            raise
    else:
        yield client
        return
    from sandboxd.ctl.private import private_daemon

    with private_daemon(interrupts) as private:
        host = private.host()
        if not quiet:
            say(f"no sandboxd answers on {client.path}: started a private one for this call")
            say(f"{host['scheme']} scheme: {host['reason']}")
        if host["isolation"]["default_level"] == "none":
            # Said even with --quiet: the program can read the caller's files.
            say(f"runs as you and sees your files: isolation none, as uid {os.geteuid()}")
        yield private
