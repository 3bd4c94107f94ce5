# SPDX-License-Identifier: Apache-2.0
"""The builder: a process that the spawner forks for one order on a sandbox's root, network or disk.

One order in a memfd, one answer through a pipe: {"ok": true, ...} or {"ok": false, "kind", "text"}.
"""

from __future__ import annotations

import os
import select
from typing import Any, NoReturn

from sandboxd.isolation import build, disks, ownership, pins, private_tmpfs
from sandboxd.isolation.root import BadImage
from sandboxd.isolation.sources import BadSource
from sandboxd.osutil.objects import decode, encode
from sandboxd.osutil.privileges import Privileges
from sandboxd.protocol import records
from sandboxd.workspace.removal import remove_tree

_MAX_TEXT = 1000
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
        order = decode(os.pread(order_fd, records.MAX_SPEC_BYTES, 0))
        answer = _answer(order, answer_fd, privileges)
        os.write(answer_fd, encode(answer))
    finally:
        os._exit(0)


def _answer(order: dict[str, Any], answer_fd: int, privileges: Privileges) -> dict[str, Any]:
    try:
        if order["op"] == "remove_tree":
            os.nice(_REMOVER_NICENESS)
            stop = _ReaderGone(answer_fd)
            has_ended = remove_tree(order["path"], privileges, stop, most=order["most"])
            return {"ok": True, "has_ended": has_ended}
        return {"ok": True, **_obey(order)}
    except build.NoBubblewrap as exc:
        return _failure("bubblewrap", exc)
    except BadImage as exc:
        return _failure("image", exc)
    except BadSource as exc:
        return _failure("bind", exc)
    except disks.DiskFull as exc:
        return _failure("full", exc)
    except PermissionError as exc:
        return _failure("permission", exc)
    except Exception as exc:
        return _failure("other", exc)


def _failure(kind: str, exc: Exception) -> dict[str, Any]:
    return {"ok": False, "kind": kind, "text": str(exc)[:_MAX_TEXT]}


def _obey(order: dict[str, Any]) -> dict[str, Any]:
    """Obey an order; return the fields of the answer beside "ok"."""
    match order["op"]:
        case "build":
            return {"binds": build.build(order)}
        case "try_binds":
            return {"notes": ownership.try_out(order["binds"], order["uid"])}
        case "try_layers":
            build.try_layers(order)
        case "try":
            build.try_out(order)
        case "try_host_root":
            build.try_host_root(order)
        case "remove":
            pins.remove(order["pins_directory"])
        case "remove_others":
            pins.remove_others(order["pins_root"], order["kept"])
        case "remove_unused":
            for root in order["roots"]:
                private_tmpfs.remove_unused(root)
        case "remove_all":
            pins.remove_all(order["pins_root"])
        case "hold_disk":
            disks.hold(
                order["root"],
                order["name"],
                image=order["image"],
                size_bytes=order["size_bytes"],
                gid=order["gid"],
            )
        case "remove_disk":
            disks.remove(order["root"], order["name"])
        case "remove_other_disks":
            disks.remove_others(order["root"], order["kept"])
        case "remove_all_disks":
            disks.remove_all(order["root"])
        case other:
            raise ValueError(f"unknown op {other!r}")
    return {}
