# SPDX-License-Identifier: Apache-2.0
"""Migrates records of older versions to the present version. Pure.

One step per version; a released step never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandboxd.errors import ConfigError

Record = dict[str, Any]
VERSION = 2
# Seconds on the clock of ports.host.Clock.monotonic; the store carries them over a reboot.
STAMPS = ("expires_monotonic", "used_monotonic", "released_monotonic", "finished_monotonic")


def _stamp(record: Record) -> Record:
    """Migrate 1 -> 2: add the time of the save.

    Version 1 has neither that time nor times of use and end: use and end count as now, and the
    deadline as of this boot.
    """
    return {**record, "saved": None}


_STEPS: dict[int, Callable[[Record], Record]] = {1: _stamp}


def migrate(record: Record) -> Record:
    """Return a record's present version. Raises ConfigError if newer, ValueError without one."""
    version = record["version"]
    if not isinstance(version, int) or version < 1:
        raise ValueError(f"version {version!r} is not known")
    if version > VERSION:
        raise ConfigError(
            f"cannot use records of version {version}: this sandboxd knows them up to {VERSION}",
            hint="start the newer sandboxd again, or name another --state-dir",
        )
    while version < VERSION:
        record = {**_STEPS[version](record), "version": version + 1}
        version += 1
    return record
