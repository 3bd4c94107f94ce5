# SPDX-License-Identifier: Apache-2.0
"""The supervision that the daemon wants: a file for each sandbox, read again when it changes.

The files survive the death of either side. The files are named by sandbox, not by uid, since
without root all sandboxes have the same uid.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from sandboxd.osutil.objects import read_json, write_json

DIRECTORY = "supervised"
PROTOCOL = 1
_SUFFIX = ".json"
_THROTTLED_SUFFIX = ".throttled"


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits on the sums of a sandbox or an execution; None = no limit of its own."""

    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    io_read_bytes_per_second: int | None = None
    io_write_bytes_per_second: int | None = None
    cpu_seconds: float | None = None
    # The backstop on each process: RLIMIT_DATA.
    data_bytes: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the limits for the file."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Entry:
    """An execution: the directory of its evidence, the shim, and the execution's own limits."""

    id: str
    evidence_directory: str
    shim_pid: int
    shim_start_time: int
    caps: Caps


@dataclass(frozen=True, slots=True)
class State:
    """A sandbox. uid: None where the sandbox has no uid of its own."""

    sandbox: str
    uid: int | None
    caps: Caps
    suspended: bool = False
    executions: tuple[Entry, ...] = ()

    def dump(self) -> dict[str, Any]:
        """Return the state for the file."""
        return {
            "protocol": PROTOCOL,
            "sandbox": self.sandbox,
            "uid": self.uid,
            "suspended": self.suspended,
            "limits": self.caps.as_dict(),
            "executions": [
                {"id": e.id, "evidence_directory": e.evidence_directory, "shim_pid": e.shim_pid,
                 "shim_start_time": e.shim_start_time, "limits": e.caps.as_dict()}
                for e in self.executions
            ],
        }  # fmt: skip


def parse(value: dict[str, Any]) -> State:
    """Raises KeyError, TypeError or ValueError for what is not a state of this protocol."""
    if value["protocol"] != PROTOCOL:
        raise ValueError(f"protocol {value['protocol']}, not {PROTOCOL}")
    if value["uid"] == 0:
        raise ValueError("root is nobody's sandbox")
    return State(
        sandbox=value["sandbox"],
        uid=value["uid"],
        suspended=value["suspended"],
        caps=Caps(**value["limits"]),
        executions=tuple(
            Entry(e["id"], e["evidence_directory"], e["shim_pid"], e["shim_start_time"],
                  Caps(**e["limits"]))
            for e in value["executions"]
        ),
    )  # fmt: skip


class StateDirectory:
    """The files of one runtime directory."""

    def __init__(self, runtime_directory: str) -> None:
        self.path = os.path.join(runtime_directory, DIRECTORY)

    def make(self) -> None:
        """Make the directory, mode 0700."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)

    def write(self, state: State) -> None:
        """Write a sandbox's state, whole or not at all. Raises OSError."""
        write_json(self.path, state.sandbox + _SUFFIX, state.dump())

    def read(self, sandbox: str) -> State | None:
        """Return the state of a sandbox; None without a file. Raises ValueError if unreadable."""
        try:
            value = read_json(self.path, sandbox + _SUFFIX)
            return None if value is None else parse(value)
        except (KeyError, TypeError) as exc:
            raise ValueError(f"cannot read the state of sandbox {sandbox}: {exc!r}") from exc

    def remove(self, sandbox: str) -> None:
        """Remove the files of a sandbox, if any."""
        for suffix in (_SUFFIX, _THROTTLED_SUFFIX):
            _unlink(os.path.join(self.path, sandbox + suffix))

    def times(self) -> dict[str, int]:
        """Return by sandbox when the file was written, in nanoseconds."""
        found = {}
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.endswith(_SUFFIX):
                    found[entry.name.removesuffix(_SUFFIX)] = entry.stat().st_mtime_ns
        return found

    def mark_throttled(self, sandbox: str) -> None:
        """Mark the sandbox before the first stop, for a successor to continue its processes."""
        path = os.path.join(self.path, sandbox + _THROTTLED_SUFFIX)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def was_throttled(self, sandbox: str) -> bool:
        """Whether a supervisor ever stopped the sandbox."""
        return os.path.exists(os.path.join(self.path, sandbox + _THROTTLED_SUFFIX))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
