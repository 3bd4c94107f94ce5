# SPDX-License-Identifier: Apache-2.0
"""Reads and makes names and descriptions of units. Pure."""

from __future__ import annotations

_SLICE = ".slice"
_BY = "sandboxd instance "


def slice_path(unit: str) -> str:
    """Return a slice's cgroup below the root: each dash nests (systemd.slice(5))."""
    words = unit.removesuffix(_SLICE).split("-")
    return "/".join("-".join(words[: count + 1]) + _SLICE for count in range(len(words)))


def describe(instance_id: str, what: str) -> str:
    """Return a unit's Description, by which a daemon knows its own units."""
    return f"{_BY}{instance_id}: {what}"


def is_foreign(description: str, instance_id: str) -> bool:
    """Return whether another instance made the unit.

    A unit that systemd implied belongs to the owner of the name.
    """
    return description.startswith(_BY) and not description.startswith(f"{_BY}{instance_id}: ")
