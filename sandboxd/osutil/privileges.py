# SPDX-License-Identifier: Apache-2.0
"""What a process may do: found once at its start, and handed down."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sandboxd.osutil.labels import read_label


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
    capabilities = read_label("/proc/self/status", "CapEff") or "0"
    return Privileges(os.geteuid(), int(capabilities, 16))
