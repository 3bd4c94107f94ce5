# SPDX-License-Identifier: Apache-2.0
"""What a process may do: found once at its start, and handed down."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Privileges:
    """uid: the effective one. capabilities: mask of the effective ones (capabilities(7))."""

    uid: int
    capabilities: int = 0

    @property
    def is_root(self) -> bool:
        """Whether the uid is root's, whatever capabilities are left."""
        return self.uid == 0

    def has(self, capability: int) -> bool:
        """Whether a capability of this number is in force."""
        return bool(self.capabilities >> capability & 1)


def of_this_process() -> Privileges:
    """Return the privileges of this process now."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        lines = dict(line.split(":", 1) for line in file if ":" in line)
    return Privileges(os.geteuid(), int(lines.get("CapEff", "0"), 16))
