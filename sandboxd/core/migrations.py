# SPDX-License-Identifier: Apache-2.0
"""How records of older versions become today's. Pure; one step for each version, never changed
once it was released."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sandboxd.errors import ConfigError

Record = dict[str, Any]
VERSION = 2
# Seconds on the clock of ports.host.Clock.monotonic; the store carries them over a reboot.
STAMPS = ("expires_monotonic", "used_monotonic", "released_monotonic", "finished_monotonic")


def _stamp(record: Record) -> Record:
    """1 -> 2: when it was written. Version 1 did not say, and kept no time of use and of end: they
    are taken to be now, and the deadline to be of this boot."""
    return {**record, "saved": None}


_STEPS: dict[int, Callable[[Record], Record]] = {1: _stamp}


def migrate(record: Record) -> Record:
    """A record of today's version.

    Raises ConfigError for one that a newer sandboxd wrote, ValueError where it has no version.
    """
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
