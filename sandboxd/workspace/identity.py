# SPDX-License-Identifier: Apache-2.0
"""Files of /etc that every sandbox has for itself: who it is and how names are found."""

from __future__ import annotations

from contextlib import suppress

from sandboxd.levels import HOME_INSIDE
from sandboxd.model import Sandbox

_PASSWD = "sandbox:x:{uid}:{uid}:sandbox:{home}:/bin/sh\n"
_GROUP = "sandbox:x:{uid}:\n"
_OTHERS = {
    "passwd": "root:x:0:0:root:/root:/usr/sbin/nologin\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\nnogroup:x:65534:\n",
}
_HOSTS = "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n"
_NSSWITCH = (
    "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
    "protocols: files\nservices: files\nrpc: files\nethers: files\n"
)


def home_inside(sandbox: Sandbox, home: str) -> str:
    """Where its commands find the directory `home` of the host's."""
    return HOME_INSIDE if sandbox.has_own_root else home


def names(sandbox: Sandbox) -> tuple[str, ...]:
    """The files' names below /etc."""
    own = ("hosts", "nsswitch.conf") if sandbox.has_own_root else ()
    return ("passwd", "group", *own)


def text(sandbox: Sandbox, name: str, home: str) -> str:
    """What one of them says. In the host's file system its own accounts stay known."""
    match name:
        case "passwd":
            line = _PASSWD.format(uid=sandbox.uid, home=home_inside(sandbox, home))
        case "group":
            line = _GROUP.format(uid=sandbox.uid)
        case "hosts":
            return _HOSTS
        case _:
            return _NSSWITCH
    if sandbox.has_own_root:
        return line + _OTHERS[name]
    with suppress(FileNotFoundError), open(f"/etc/{name}", encoding="utf-8") as file:
        line += file.read()
    return line
