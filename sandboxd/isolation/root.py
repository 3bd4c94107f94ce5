# SPDX-License-Identifier: Apache-2.0
"""What the host, or an image, has to put into a sandbox's root. Only looks, changes nothing."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import Any

from sandboxd.isolation.bubblewrap import Root

# What programs need to find names, certificates, libraries and the time zone; nothing with secrets.
_ETC = (
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies",
    "debian_version", "fonts", "gai.conf", "host.conf", "inputrc", "ld.so.cache",
    "ld.so.conf", "ld.so.conf.d", "locale.alias", "localtime", "magic", "magic.mime", "mailcap",
    "mime.types", "os-release", "perl", "pki/ca-trust", "pki/tls/certs",
    "profile", "protocols", "python3", "redhat-release", "rpc", "services", "ssl/certs",
    "ssl/openssl.cnf", "terminfo", "timezone", "xdg",
)  # fmt: skip
_ETC_PREFIXES = ("java-", "python3.")
# With the host's network come its names.
_ETC_OF_HOST_NETWORK = ("hosts", "resolv.conf")
_USR_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Of an image: the root's own, and what a system keeps for itself.
_NOT_OF_AN_IMAGE = frozenset(
    ("boot", "dev", "home", "lost+found", "media", "mnt", "proc", "root", "run", "srv", "sys",
     "tmp", "var")
)  # fmt: skip


class BadImage(Exception):
    """Raised when an image cannot be used; the text says why."""


def describe(spec: dict[str, Any]) -> Root:
    """The root that a specification (spawn/roots.py) asks for. Raises BadImage."""
    if spec["image"] is None:
        readable, links = _of_host(spec["system_paths"])
    else:
        readable, links = _of_image(spec["image"])
    shared = shared_directories(spec["system_paths"]) if spec["image"] is None else [spec["image"]]
    files = dict(spec["files"])
    if spec["network"] == "host":
        files |= _resolving_files()
    if spec["image"] is not None:
        # Nothing can be made in its read-only /etc.
        files = {p: f for p, f in files.items() if os.path.isfile(spec["image"] + p)}
    binds = spec["binds"]
    return Root(
        readable=[
            *readable,
            *((source, path) for path, source in files.items()),
            *((bind["source"], bind["target"]) for bind in binds if not bind["writable"]),
        ],
        links=links,
        home=(spec["home"], spec["home_inside"]),
        tmp=spec["tmp"],
        shm_bytes=spec["shm_bytes"],
        shared=shared,
        writable=[(bind["source"], bind["target"]) for bind in binds if bind["writable"]],
    )


def shared_directories(system_paths: Iterable[str]) -> list[str]:
    """Those of the host that roots are made of; none lies in another."""
    found = ["/usr", "/etc"]
    paths = [f"/{name}" for name in _USR_LINKS if not os.path.islink(f"/{name}")]
    for path in sorted([*paths, *system_paths]):
        real = os.path.realpath(path)
        if os.path.isdir(real) and not any(f"{real}/".startswith(f"{top}/") for top in found):
            found.append(real)
    return found


def _of_host(system_paths: Iterable[str]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    readable, links = [("/usr", "/usr")], []
    for name in _USR_LINKS:
        path = f"/{name}"
        if os.path.islink(path):
            links.append((os.readlink(path), path))
        elif os.path.isdir(path):
            readable.append((path, path))
    readable += [(path, path) for path in system_paths if os.path.exists(path)]
    for name in _etc_names():
        path = f"/etc/{name}"
        if not os.path.exists(path):
            continue
        real = os.path.realpath(path)
        if os.path.islink(path) and real.startswith("/usr/"):
            links.append((real, path))
        else:
            readable.append((real, path))
    return readable, links


def _etc_names() -> Iterator[str]:
    yield from _ETC
    for name in sorted(os.listdir("/etc")):
        if name.startswith(_ETC_PREFIXES) and name not in _ETC:
            yield name


def _resolving_files() -> dict[str, str]:
    paths = {f"/etc/{name}": os.path.realpath(f"/etc/{name}") for name in _ETC_OF_HOST_NETWORK}
    return {path: real for path, real in paths.items() if os.path.isfile(real)}


def _of_image(image: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    _check_image(image)
    readable, links = [], []
    for name in sorted(os.listdir(image)):
        path = os.path.join(image, name)
        if name in _NOT_OF_AN_IMAGE:
            continue
        if os.path.islink(path):
            links.append((os.readlink(path), f"/{name}"))
        elif os.path.isdir(path):
            readable.append((path, f"/{name}"))
    return readable, links


def _check_image(image: str) -> None:
    """An image is root's alone, and has what the root's holder and every command need."""
    try:
        status = os.lstat(image)
    except OSError as exc:
        raise BadImage(f"there is no such image: {exc.strerror}") from exc
    if not stat.S_ISDIR(status.st_mode):
        raise BadImage("the image is not a directory")
    if status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadImage("the image can be written by others than root")
    for name in ("usr", "etc", "etc/passwd"):
        if not os.path.lexists(os.path.join(image, name)):
            raise BadImage(f"the image has no /{name}")
