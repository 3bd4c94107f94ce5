# SPDX-License-Identifier: Apache-2.0
"""Describe what a sandbox's root takes from the host or from an image. Reads only."""

from __future__ import annotations

import os
import stat

from sandboxd.isolation import etc
from sandboxd.isolation.bubblewrap import Root
from sandboxd.isolation.layers import Mask
from sandboxd.protocol.building import HostParts, RootSpec

# What programs of /usr have there, by links or by name: no state of services.
_VAR_LIB = (
    "aspell", "dictionaries-common", "emacsen-common", "fonts", "gems", "ghc", "ghostscript",
    "ieee-data", "ispell", "javascript-common", "libreoffice", "mecab", "mono", "myspell", "ocaml",
    "pciutils", "R", "sgml-base", "tex-common", "texmf", "usbutils", "vim", "xkb", "xml-core",
)  # fmt: skip
# The number and topology of processors, which do not name the host. Not at strict: files there tell
# to the microsecond how idle each processor is.
_SYS = ("/sys/devices/system/cpu", "/sys/devices/system/node")
_USR_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# Directories that the root or the host provides, never an image.
_NOT_OF_AN_IMAGE = frozenset(
    ("boot", "dev", "home", "lost+found", "media", "mnt", "proc", "root", "run", "srv", "sys",
     "tmp", "var")
)  # fmt: skip


class BadImage(Exception):
    """Raised when an image cannot be used; the text says why."""


def describe(wanted: RootSpec) -> Root:
    """Return the root that a specification asks for. Raises BadImage."""
    files, image = dict(wanted.host.identity_files), wanted.image
    if image is None:
        shared, masks = shared_directories(wanted.host), masks_of(wanted.host)
        readable, links = _of_host(wanted.host, layers=wanted.layers)
    else:
        shared, masks = [image], {}
        readable, links = _of_image(image)
        # An image's /etc is read-only: bwrap cannot make a mount point there.
        files = {p: f for p, f in files.items() if os.path.isfile(image + p)}
    return Root(
        readable=[
            *readable,
            *((source, path) for path, source in files.items()),
            *((bind.source, bind.target) for bind in wanted.binds if not bind.writable),
        ],
        links=links,
        home=(wanted.home, wanted.home_inside),
        tmp_directory=wanted.tmp_directory,
        shm_bytes=wanted.shm_bytes,
        shared=shared if wanted.layers else (),
        masks=masks,
        writable=[(bind.source, bind.target) for bind in wanted.binds if bind.writable],
    )


def masks_of(host: HostParts) -> dict[str, Mask]:
    """Return by directory of the host the names left out."""
    own = [os.path.basename(path) for path in host.identity_files]
    return {etc.TOP: etc.mask(host.etc_hidden, host.system_paths, own)}


def shared_directories(host: HostParts) -> list[str]:
    """Return the host's directories that roots share; none lies in another."""
    found = ["/usr", etc.TOP]
    paths = [f"/{name}" for name in _USR_LINKS if not os.path.islink(f"/{name}")]
    for path in sorted([*paths, *_further(host)]):
        real = os.path.realpath(path)
        if os.path.isdir(real) and not any(f"{real}/".startswith(f"{top}/") for top in found):
            found.append(real)
    return found


def _further(host: HostParts) -> list[str]:
    """Return the paths of the host beside /usr and /etc."""
    paths = [f"/var/lib/{name}" for name in _VAR_LIB]
    if not host.is_strict:
        paths += _SYS
    paths += [path for path in host.system_paths if not f"{path}/".startswith(f"{etc.TOP}/")]
    return [path for path in paths if os.path.exists(path)]


def _of_host(
    host: HostParts, *, layers: bool
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    readable, links = [("/usr", "/usr")], []
    for name in _USR_LINKS:
        path = f"/{name}"
        if os.path.islink(path):
            links.append((os.readlink(path), path))
        elif os.path.isdir(path):
            readable.append((path, path))
    readable += [(path, path) for path in _further(host)]
    if layers:
        return [*readable, (etc.TOP, etc.TOP)], links
    of_etc, links_of_etc = etc.entries(masks_of(host)[etc.TOP])
    return [*readable, *of_etc], [*links, *links_of_etc]


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
    """Raise BadImage unless only root may write the image and it has /usr and /etc/passwd."""
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
