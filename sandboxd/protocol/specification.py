# SPDX-License-Identifier: Apache-2.0
"""A shim's specification: the execution that the daemon wants, in a memfd beside Spawn."""

from collections.abc import Mapping
from dataclasses import dataclass

from sandboxd.protocol.codec import Codec


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """A terminal's size in characters."""

    rows: int
    cols: int


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """The command's process.

    uid: also the gid; None = the daemon's own. rlimits: by name in module `resource`, soft and
    hard. filter: an isolation.seccomp.Filter; None = no filter. tty: None = no terminal.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    uid: int | None
    rlimits: Mapping[str, tuple[int, int]]
    filter: str | None
    merge_output: bool
    stdin_open: bool
    tty: TerminalSize | None


@dataclass(frozen=True, slots=True)
class OwnRoot:
    """The execution's mounts in a sandbox's own root.

    masked: whether /proc hides the kernel's own information. terminals: how many may be open.
    """

    masked: bool
    terminals: int


@dataclass(frozen=True, slots=True)
class HostRoot:
    """The execution's mounts over the host's root.

    pins_root, disks_root: mounts with other sandboxes' namespaces and disks. identity_files: path
    inside -> file. record_directory: of the execution, a mount point meanwhile.
    """

    pins_root: str
    disks_root: str
    tmp_directory: str
    record_directory: str
    identity_files: Mapping[str, str]
    shm_bytes: int
    terminals: int


@dataclass(frozen=True, slots=True)
class PlaceSpec:
    """Namespaces to join, by pins, and mounts to make there.

    own_root, host_root: one is None; both where the execution has no mounts of its own.
    """

    pins: tuple[str, ...]
    pins_directory: str
    own_root: OwnRoot | None
    host_root: HostRoot | None


@dataclass(frozen=True, slots=True)
class Supervision:
    """The supervisor that judges beside the shim, and the directory of its evidence."""

    socket_path: str
    evidence_directory: str
    sandbox: str
    execution: str


@dataclass(frozen=True, slots=True)
class ExecutionSpec:
    """An execution and its limits.

    cgroup: the end of the path of the scope that the shim must find itself in; None = no scope.
    spool_floor_bytes: free space on the file system that large output must leave.
    """

    command: CommandSpec
    place: PlaceSpec
    cgroup: str | None
    supervision: Supervision | None
    timeout_seconds: float
    cpu_seconds: float | None
    kill_grace_seconds: float
    max_output_bytes: int
    spool_floor_bytes: int


@dataclass(frozen=True, slots=True)
class ShimSpec:
    """What a shim shall do. execution: None = be held, to be aborted."""

    record_directory: str
    execution: ExecutionSpec | None


SPECIFICATION = Codec(ShimSpec)
