# SPDX-License-Identifier: Apache-2.0
"""Host uids for sandboxes, taken under a host-wide lock so that several daemons never share one.

The default range lies between the ranges that systemd's UIDS-GIDS page assigns. A claim is a file
named after the uid in a directory that lives as long as the boot; the text names daemon and
sandbox.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import secrets
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress

from sandboxd.core.policy import DEFAULT_UID_COUNT, DEFAULT_UID_FIRST
from sandboxd.errors import CapacityExceeded, host_lacks
from sandboxd.osutil.descriptors import closing_fd
from sandboxd.osutil.files import remove_file, write_all, write_whole
from sandboxd.osutil.locks import locked, open_lock
from sandboxd.osutil.pidfd import kill, open_pidfd
from sandboxd.osutil.processes import owner, owners

CLAIMS = "/run/sandboxd-uids"
_SUBORDINATE = ("/etc/subuid", "/etc/subgid")
_TRIES = 256


class UidRange:
    """Takes uids from a range; fits ports.host.Uids."""

    def __init__(
        self,
        owner: str,
        *,
        first: int = DEFAULT_UID_FIRST,
        count: int = DEFAULT_UID_COUNT,
        claims: str = CLAIMS,
    ) -> None:
        self._owner = owner
        self._first = first
        self._count = count
        self._claims = claims

    async def take(self, sandbox_id: str) -> int:
        """Return a uid that no account, no live process and no other sandbox has.

        Raises CapacityExceeded and HostDiskFull.
        """
        return await asyncio.to_thread(self._take, sandbox_id)

    async def give_back(self, uid: int) -> bool:
        """Free the uid once no process has the uid; False while a process has."""
        return await asyncio.to_thread(self._give_back, uid)

    async def busy(self, uids: Collection[int]) -> Collection[int]:
        """Return the uids, of those given, that a process has."""
        if not uids:
            return ()
        return set(uids) & await asyncio.to_thread(process_uids)

    async def reclaim(self, uid: int, sandbox_id: str) -> None:
        """Hold again a uid taken by an earlier daemon; claims do not outlive the boot."""
        with self._locked():
            write_whole(os.path.join(self._claims, str(uid)), self._claim(sandbox_id))

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        """Free the uids taken by an earlier daemon of this instance, except for `sandbox_ids`."""
        await asyncio.to_thread(self._discard_unknown, sandbox_ids)

    def _discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        busy = process_uids()
        with self._locked():
            for name in os.listdir(self._claims):
                if not name.isdigit() or int(name) in busy:
                    continue
                path = os.path.join(self._claims, name)
                with open(path, encoding="ascii") as file:
                    owner, _, sandbox_id = file.read().strip().partition(" ")
                if owner == self._owner and sandbox_id not in sandbox_ids:
                    os.unlink(path)

    def _take(self, sandbox_id: str) -> int:
        busy, subordinate = process_uids(), _subordinate_ids()
        with self._locked():
            for _ in range(_TRIES):
                uid = self._first + secrets.randbelow(self._count)
                if uid in busy or any(uid in ids for ids in subordinate) or _is_known(uid):
                    continue
                try:
                    self._make_claim(uid, sandbox_id)
                except FileExistsError:
                    continue
                except OSError as exc:
                    raise host_lacks("cannot claim a uid", exc, self._claims) from exc
                return uid
        raise CapacityExceeded(
            f"cannot find a free uid in {self._first}..{self._first + self._count - 1}",
            hint="release sandboxes or configure a wider range",
        )

    def _give_back(self, uid: int) -> bool:
        with self._locked():
            if uid in process_uids():
                return False
            remove_file(os.path.join(self._claims, str(uid)))
            return True

    def _claim(self, sandbox_id: str) -> bytes:
        return f"{self._owner} {sandbox_id}\n".encode()

    def _make_claim(self, uid: int, sandbox_id: str) -> None:
        path = os.path.join(self._claims, str(uid))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, self._claim(sandbox_id))
        except OSError:
            # A claim without an owner would never be freed.
            os.unlink(path)
            raise
        finally:
            os.close(fd)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        os.makedirs(self._claims, mode=0o700, exist_ok=True)
        with locked(open_lock(os.path.join(self._claims, "lock"))):
            yield


class CallerUid:
    """Without root every sandbox runs as the daemon's own uid."""

    def __init__(self, uid: int) -> None:
        self._uid = uid

    async def take(self, sandbox_id: str) -> int:
        """Return the daemon's own uid."""
        return self._uid

    async def give_back(self, uid: int) -> bool:
        """Return True: no uid was taken."""
        return True

    async def busy(self, uids: Collection[int]) -> Collection[int]:
        """Return no uid: the daemon's own has further processes."""
        return ()

    async def reclaim(self, uid: int, sandbox_id: str) -> None:
        """Do nothing: no uid was taken."""

    async def discard_unknown(self, sandbox_ids: Collection[str]) -> None:
        """Do nothing: no uid was taken."""


def process_uids() -> set[int]:
    """Return the uids of all processes."""
    return {uid for _, uid in owners()}


def kill_processes(uid: int) -> int:
    """Send SIGKILL to the processes that have a sandbox's uid now; return how many."""
    pids = [pid for pid, has in owners() if has == uid]
    for pid in pids:
        with suppress(ProcessLookupError):
            _kill(pid, uid)
    return len(pids)


def _kill(pid: int, uid: int) -> None:
    """Send SIGKILL if the process still has the uid.

    The pid may have been reused by a process of the host: the owner is read again once a pidfd
    holds the process.
    """
    with closing_fd(open_pidfd(pid)) as pidfd:
        if owner(pid) == uid:
            kill(pidfd)


def _is_known(uid: int) -> bool:
    with suppress(KeyError):
        pwd.getpwuid(uid)
        return True
    with suppress(KeyError):
        grp.getgrgid(uid)
        return True
    return False


def _subordinate_ids() -> list[range]:
    """Return the ids that subuid(5) and subgid(5) assign to users' namespaces."""
    ids = []
    for path in _SUBORDINATE:
        with suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
            for line in file:
                parts = line.strip().split(":")
                if len(parts) == 3 and parts[1].isdigit() and parts[2].isdigit():
                    ids.append(range(int(parts[1]), int(parts[1]) + int(parts[2])))
    return ids
