# SPDX-License-Identifier: Apache-2.0
"""Signal all processes of a uid at once, without ever forking.

Under a fork bomb a fork could wait for seconds inside the kernel. A single-threaded root process
that takes the uid as effective uid reaches with kill(-1) exactly that uid, atomically against fork,
in nested pid namespaces too (kill(2)). The real uid meanwhile belongs to no user, so that no
process of the sandbox may signal the supervisor; a real uid of 0 would make kill(-1) reach root.
"""

from __future__ import annotations

import os
from contextlib import suppress

from sandboxd.osutil.privileges import Privileges

# Unassigned, between systemd's container range and the last usable uid (systemd: UIDS-GIDS); 65533
# for user namespaces that map only 65536 ids.
_NOBODYS_UIDS = (0x7FFFFF42, 65533)


class UidSignaller:
    """Sends signals. `reaches_uids`: whether a whole uid can be had at once."""

    def __init__(self, privileges: Privileges) -> None:
        self._mask = self._find_mask() if privileges.is_root else None
        self.reaches_uids = self._mask is not None

    def signal_uid(self, uid: int, number: int) -> None:
        """Send a signal to every process of a sandbox's uid."""
        if self._mask is None or uid == 0:
            raise PermissionError(f"cannot signal uid {uid} as a whole")
        os.setresuid(self._mask, uid, 0)
        try:
            # ESRCH and EPERM: there was no process to signal (kill(2)).
            with suppress(ProcessLookupError, PermissionError):
                os.kill(-1, number)
        finally:
            os.setresuid(0, 0, 0)

    def _find_mask(self) -> int | None:
        for uid in _NOBODYS_UIDS:
            # EINVAL: this user namespace does not map the uid. EPERM: no CAP_SETUID.
            with suppress(OSError):
                os.setresuid(uid, -1, 0)
                os.setresuid(0, 0, 0)
                return uid
        return None
