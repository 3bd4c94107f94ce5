# SPDX-License-Identifier: Apache-2.0
"""What a unit's name and description tell. Pure."""

from __future__ import annotations

_SLICE = ".slice"
_BY = "sandboxd instance "


def slice_path(unit: str) -> str:
    """Where a slice's cgroup is below the root: each dash nests (systemd.slice(5))."""
    words = unit.removesuffix(_SLICE).split("-")
    return "/".join("-".join(words[: count + 1]) + _SLICE for count in range(len(words)))


def describe(instance_id: str, what: str) -> str:
    """A unit's Description, by which a daemon knows its own: for systemctl status as well."""
    return f"{_BY}{instance_id}: {what}"


def is_foreign(description: str, instance_id: str) -> bool:
    """Whether another instance made the unit; one that systemd implied belongs to the name."""
    return description.startswith(_BY) and not description.startswith(f"{_BY}{instance_id}: ")
