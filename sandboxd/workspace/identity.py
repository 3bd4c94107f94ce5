# SPDX-License-Identifier: Apache-2.0
"""Files of /etc that every sandbox has for itself: accounts and name resolution."""

from __future__ import annotations

import os
from contextlib import suppress

from sandboxd.core.levels import HOME_INSIDE
from sandboxd.core.model import Network, Sandbox
from sandboxd.osutil.files import write_all

_PASSWD = "sandbox:x:{uid}:{uid}:sandbox:{home}:/bin/sh\n"
_GROUP = "sandbox:x:{uid}:\n"
# Debian's base accounts (base-passwd), the same on every Debian host: owners by name of files of
# /usr and of archives. The host's own accounts are left out.
_USERS = (
    ("root", 0, 0), ("daemon", 1, 1), ("bin", 2, 2), ("sys", 3, 3), ("sync", 4, 65534),
    ("games", 5, 60), ("man", 6, 12), ("lp", 7, 7), ("mail", 8, 8), ("news", 9, 9),
    ("uucp", 10, 10), ("proxy", 13, 13), ("www-data", 33, 33), ("backup", 34, 34),
    ("list", 38, 38), ("irc", 39, 39), ("_apt", 42, 65534), ("nobody", 65534, 65534),
)  # fmt: skip
_GROUPS = (
    ("root", 0), ("daemon", 1), ("bin", 2), ("sys", 3), ("adm", 4), ("tty", 5), ("disk", 6),
    ("lp", 7), ("mail", 8), ("news", 9), ("uucp", 10), ("man", 12), ("proxy", 13), ("kmem", 15),
    ("dialout", 20), ("fax", 21), ("voice", 22), ("cdrom", 24), ("floppy", 25), ("tape", 26),
    ("sudo", 27), ("audio", 29), ("dip", 30), ("www-data", 33), ("backup", 34), ("operator", 37),
    ("list", 38), ("irc", 39), ("src", 40), ("shadow", 42), ("utmp", 43), ("video", 44),
    ("sasl", 45), ("plugdev", 46), ("staff", 50), ("games", 60), ("users", 100),
    ("nogroup", 65534),
)  # fmt: skip
_OTHERS = {
    "passwd": "".join(
        f"{name}:x:{uid}:{gid}:{name}:{'/root' if uid == 0 else '/nonexistent'}:/usr/sbin/nologin\n"
        for name, uid, gid in _USERS
    ),
    "group": "".join(f"{name}:x:{gid}:\n" for name, gid in _GROUPS),
}
# Copies of the host's files for a sandbox with the host's network.
OF_HOST_NETWORK = ("hosts", "resolv.conf")
_MAX_NAMES_BYTES = 1 << 20
_HOSTS = "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost ip6-loopback\n"
_NSSWITCH = (
    "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
    "protocols: files\nservices: files\nrpc: files\nethers: files\n"
)


def home_inside(sandbox: Sandbox, home: str) -> str:
    """Return the path of the host's directory `home` as the sandbox's commands see the home."""
    return HOME_INSIDE if sandbox.has_own_root else home


def names(sandbox: Sandbox) -> tuple[str, ...]:
    """Return the names of the sandbox's identity files below /etc."""
    if not sandbox.has_own_root:
        return ("passwd", "group")
    resolver = ("resolv.conf",) if follows_host(sandbox) else ()
    return ("passwd", "group", "hosts", "nsswitch.conf", *resolver)


def follows_host(sandbox: Sandbox) -> bool:
    """Return whether the sandbox's OF_HOST_NETWORK files have the host's contents."""
    return sandbox.has_own_root and sandbox.network is Network.HOST


def text(sandbox: Sandbox, name: str, home: str) -> str:
    """Return an identity file's text; without a root the host's accounts follow the sandbox's."""
    match name:
        case "passwd":
            line = _PASSWD.format(uid=sandbox.uid, home=home_inside(sandbox, home))
        case "group":
            line = _GROUP.format(uid=sandbox.uid)
        case "hosts" | "resolv.conf":
            own = _HOSTS if name == "hosts" else ""
            return _of_host(name, own) if follows_host(sandbox) else own
        case _:
            return _NSSWITCH
    if sandbox.has_own_root:
        return line + _OTHERS[name]
    with suppress(FileNotFoundError), open(f"/etc/{name}", encoding="utf-8") as file:
        line += file.read()
    return line


def write(path: str, text: str) -> None:
    """Write a new identity file."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with open(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text)


def rewrite(path: str, text: str) -> None:
    """Rewrite a file so that no reader ever finds an empty file."""
    data = text.encode(errors="surrogateescape")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    with open(fd, "r+b", buffering=0) as file:
        if file.read() != data:
            file.seek(0)
            write_all(fd, data)
            file.truncate()


def _of_host(name: str, otherwise: str) -> str:
    try:
        with open(f"/etc/{name}", encoding="utf-8", errors="surrogateescape") as file:
            return file.read(_MAX_NAMES_BYTES)
    except FileNotFoundError:
        return otherwise
