# SPDX-License-Identifier: Apache-2.0
"""The supervision that the daemon wants: a file for each sandbox, read again when it changes.

The files survive the death of either side. The files are named by sandbox, not by uid, since
without root all sandboxes have the same uid.
"""

import os
from dataclasses import dataclass

from sandboxd.osutil.files import remove_file, touch
from sandboxd.protocol.codec import Codec, Malformed

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


@dataclass(frozen=True, slots=True)
class Entry:
    """An execution: the directory of its evidence, the shim, and the execution's own limits."""

    id: str
    evidence_directory: str
    shim_pid: int
    shim_start_time: int
    limits: Caps


@dataclass(frozen=True, slots=True)
class State:
    """A sandbox. uid: None where the sandbox has no uid of its own."""

    sandbox: str
    uid: int | None
    limits: Caps
    suspended: bool = False
    executions: tuple[Entry, ...] = ()
    protocol: int = PROTOCOL


STATE = Codec(State)


class StateDirectory:
    """The files of one runtime directory."""

    def __init__(self, runtime_directory: str) -> None:
        self.path = os.path.join(runtime_directory, DIRECTORY)

    def make(self) -> None:
        """Make the directory, mode 0700."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)

    def write(self, state: State) -> None:
        """Write a sandbox's state, whole or not at all. Raises OSError."""
        STATE.write(self.path, state.sandbox + _SUFFIX, state)

    def read(self, sandbox: str) -> State | None:
        """Return the state of a sandbox; None without a file. Raises OSError, and Malformed."""
        state = STATE.read(self.path, sandbox + _SUFFIX)
        if state is not None and state.protocol != PROTOCOL:
            raise Malformed(f"cannot read sandbox {sandbox}: its protocol is {state.protocol}")
        if state is not None and state.uid == 0:
            raise Malformed(f"cannot read sandbox {sandbox}: root is nobody's sandbox")
        return state

    def remove(self, sandbox: str) -> None:
        """Remove the files of a sandbox, if any."""
        for suffix in (_SUFFIX, _THROTTLED_SUFFIX):
            remove_file(os.path.join(self.path, sandbox + suffix))

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
        touch(os.path.join(self.path, sandbox + _THROTTLED_SUFFIX))

    def was_throttled(self, sandbox: str) -> bool:
        """Whether a supervisor ever stopped the sandbox."""
        return os.path.exists(os.path.join(self.path, sandbox + _THROTTLED_SUFFIX))
