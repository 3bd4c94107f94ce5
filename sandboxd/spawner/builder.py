# SPDX-License-Identifier: Apache-2.0
"""The builder: a process that the spawner forks for one order on a sandbox's root, network or disk.

One order in a memfd, one answer through a pipe (protocol/building.py).
"""

from __future__ import annotations

import os
import select
from typing import NoReturn, assert_never

from sandboxd.isolation import build, disks, ownership, pins, private_tmpfs
from sandboxd.isolation.root import BadImage
from sandboxd.isolation.sources import BadSource
from sandboxd.osutil.privileges import Privileges
from sandboxd.protocol import building, records
from sandboxd.protocol.building import Failure
from sandboxd.workspace.removal import remove_tree

# An answer is at most 4096 bytes, and JSON takes six for a character.
_MAX_TEXT = 600
# A removal must not delay work that a client waits for.
_REMOVER_NICENESS = 10
# A poll(2) for each entry would be a third of the system calls.
_ENTRIES_BETWEEN_LOOKS = 64


class _ReaderGone:
    """Set once no process waits for the answer; fits removal.Stop."""

    def __init__(self, answer_fd: int) -> None:
        self._poll = select.poll()
        self._poll.register(answer_fd, 0)
        self._asked = 0

    def is_set(self) -> bool:
        """Whether the answer's reader is gone: POLLERR to the writer of a pipe (poll(2))."""
        self._asked += 1
        return self._asked % _ENTRIES_BETWEEN_LOOKS == 0 and bool(self._poll.poll(0))


def run(order_fd: int, answer_fd: int, privileges: Privileges) -> NoReturn:
    """Obey the order, answer and end. The caller has closed all further descriptors."""
    try:
        order = os.pread(order_fd, records.MAX_SPEC_BYTES, 0)
        answer = _answer(order, answer_fd, privileges)
        os.write(answer_fd, building.ANSWERS.encode(answer))
    finally:
        os._exit(0)


def _answer(order: bytes, answer_fd: int, privileges: Privileges) -> building.Answer:
    try:
        return _obey(building.ORDERS.decode(order), answer_fd, privileges)
    except build.NoBubblewrap as exc:
        return _failed(Failure.BUBBLEWRAP, exc)
    except BadImage as exc:
        return _failed(Failure.IMAGE, exc)
    except BadSource as exc:
        return _failed(Failure.BIND, exc)
    except disks.DiskFull as exc:
        return _failed(Failure.FULL, exc)
    except PermissionError as exc:
        return _failed(Failure.PERMISSION, exc)
    except Exception as exc:
        return _failed(Failure.OTHER, exc)


def _failed(kind: Failure, exc: Exception) -> building.Failed:
    return building.Failed(kind, str(exc)[:_MAX_TEXT])


def _obey(order: building.Order, answer_fd: int, privileges: Privileges) -> building.Answer:
    match order:
        case building.Build():
            return building.Built(build.build(order))
        case building.TryBinds(binds, uid):
            return building.Notes(tuple(ownership.try_out(binds, uid)))
        case building.RemoveTree(path, most):
            os.nice(_REMOVER_NICENESS)
            stop = _ReaderGone(answer_fd)
            return building.Removed(remove_tree(path, privileges, stop, most=most))
        case building.TryLayers(pins_root, host):
            build.try_layers(pins_root, host)
        case building.TryBuild(wanted):
            build.try_out(wanted)
        case building.TryHostRoot(root):
            build.try_host_root(root)
        case building.Remove(directory):
            pins.remove(directory)
        case building.RemoveOthers(pins_root, kept):
            pins.remove_others(pins_root, kept)
        case building.RemoveUnused(roots):
            for one in roots:
                private_tmpfs.remove_unused(one)
        case building.RemoveAll(pins_root):
            pins.remove_all(pins_root)
        case building.HoldDisk():
            disks.hold(
                order.root,
                order.name,
                image=order.image,
                size_bytes=order.size_bytes,
                gid=order.gid,
            )
        case building.RemoveDisk(disks_root, name):
            disks.remove(disks_root, name)
        case building.RemoveOtherDisks(disks_root, kept):
            disks.remove_others(disks_root, kept)
        case building.RemoveAllDisks(disks_root):
            disks.remove_all(disks_root)
        case _:
            assert_never(order)
    return building.Done()
