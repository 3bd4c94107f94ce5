# SPDX-License-Identifier: Apache-2.0
"""Checks host paths that a sandbox may be given, and the paths inside. Pure.

A source must equal an entry of the admin's list: below a listed directory a stranger may have put a
symbolic link.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sandboxd.core.model import Bind
from sandboxd.errors import AccessDenied, ConfigError, InvalidRequest

MAX_BINDS = 16
_WRITABLE_SUFFIX = ":rw"
# Top directories of a sandbox's root, which no bind may cover or enter.
_TAKEN = frozenset(
    ("bin", "boot", "dev", "etc", "home", "proc", "root", "run", "sbin", "sys", "tmp", "usr", "var")
)


@dataclass(frozen=True, slots=True)
class BindPolicy:
    """The admin's list of sources (path -> writable), and extra top directories of a root."""

    allowed: Mapping[str, bool]
    taken: Collection[str] = ()

    @classmethod
    def of_settings(cls, entries: Collection[str], system_paths: Collection[str]) -> BindPolicy:
        """Parse entries `/path` (read-only) or `/path:rw`. Raises ConfigError."""
        allowed = {}
        for entry in entries:
            path = entry.removesuffix(_WRITABLE_SUFFIX)
            if not _is_plain(path):
                raise ConfigError(
                    f"cannot allow binds of {entry!r}: not an absolute path without . and ..",
                    hint="write /path, or /path:rw where sandboxes may write",
                )
            allowed[path] = entry.endswith(_WRITABLE_SUFFIX)
        _check_apart(allowed)
        return cls(allowed, tuple(path.split("/")[1] for path in system_paths))

    def check(self, binds: Collection[Bind]) -> None:
        """Raise AccessDenied or InvalidRequest for the first forbidden bind."""
        targets: list[str] = []
        for number, bind in enumerate(binds):
            where = f"binds.{number}"
            if bind.source not in self.allowed:
                raise AccessDenied(
                    f"cannot bind {bind.source!r}: it is not among the paths this server allows",
                    hint="the admin lists them in the setting bind_paths",
                    details={"source": bind.source},
                )
            if bind.writable and not self.allowed[bind.source]:
                raise AccessDenied(
                    f"cannot bind {bind.source!r} writable: this server allows it read-only",
                    details={"source": bind.source},
                )
            self._check_target(f"{where}.target", bind.target, targets)
            targets.append(bind.target)

    def _check_target(self, field: str, target: str, others: list[str]) -> None:
        if not _is_plain(target):
            raise InvalidRequest.field(field, "must be an absolute path without . and ..")
        top = target.split("/")[1]
        if top in _TAKEN or top.startswith("lib") or top in self.taken:
            raise InvalidRequest.field(field, f"/{top} is the root's own: use /mnt, /srv or /data")
        for other in others:
            if f"{target}/".startswith(f"{other}/") or f"{other}/".startswith(f"{target}/"):
                raise InvalidRequest.field(field, f"overlaps the target {other!r}")


def _check_apart(allowed: Mapping[str, bool]) -> None:
    """Raise ConfigError for a source below a writable one: a sandbox could put a link there."""
    for path in allowed:
        for upper, writable in allowed.items():
            if writable and path.startswith(f"{upper}/"):
                raise ConfigError(
                    f"cannot allow binds of {path!r}: it lies below {upper!r}, where sandboxes may "
                    "write and so replace it",
                    hint=f"take it off the list, or allow {upper} without :rw",
                )


def _is_plain(path: str) -> bool:
    # normpath keeps two slashes at the beginning.
    is_absolute = path.startswith("/") and not path.startswith("//")
    return is_absolute and path != "/" and os.path.normpath(path) == path
