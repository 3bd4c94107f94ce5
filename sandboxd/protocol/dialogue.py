# SPDX-License-Identifier: Apache-2.0
"""Orders to the supervisor, and answers. One packet each.

Daemons, shims and supervisors of the release before speak to those of this one for a while: fields
that are added here need defaults, and names on the wire stay.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from sandboxd.osutil import objects
from sandboxd.protocol.codec import Codec, Kinds
from sandboxd.protocol.evidence import Verdict
from sandboxd.protocol.supervision import PROTOCOL


@dataclass(frozen=True, slots=True)
class Hello:
    """Asks for a Greeting."""


@dataclass(frozen=True, slots=True)
class Load:
    """Have the sandbox's file in force. Loaded follows."""

    sandbox: str


@dataclass(frozen=True, slots=True)
class AskMemory:
    """Asks for MemoryNow."""

    sandbox: str


@dataclass(frozen=True, slots=True)
class AskUsage:
    """Asks for UsageNow."""

    sandbox: str


@dataclass(frozen=True, slots=True)
class AskExecutions:
    """Asks for ExecutionsNow."""

    sandbox: str


@dataclass(frozen=True, slots=True)
class Kill:
    """Send SIGKILL to all processes of the sandbox."""

    sandbox: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """As Kill, unless the sandbox has executions."""

    sandbox: str


@dataclass(frozen=True, slots=True)
class Conclude:
    """A shim's: the execution has ended; write the usage. Concluded follows."""

    sandbox: str
    execution: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End the supervisor."""


OrderOnSandbox = AskMemory | AskUsage | AskExecutions | Kill | Sweep | Conclude
Order = Hello | Load | OrderOnSandbox | Stop
ORDERS: Kinds[Order] = Kinds(
    "op",
    {
        "hello": Hello,
        "load": Load,
        "memory": AskMemory,
        "usage": AskUsage,
        "executions": AskExecutions,
        "kill": Kill,
        "sweep": Sweep,
        "ended": Conclude,
        "stop": Stop,
    },
)


@dataclass(frozen=True, slots=True)
class Refused:
    """The order was not obeyed. Every further class of answers reads this one."""

    ok: bool = False


@dataclass(frozen=True, slots=True)
class Obeyed:
    """The order was obeyed."""

    ok: bool = True


@dataclass(frozen=True, slots=True)
class Loaded:
    """why: the file is not in force."""

    ok: bool
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Greeting:
    """The supervisor's protocol, and what it can do on this host (supervisor/host.py)."""

    ok: bool
    protocol: int
    pid: int
    scheduling: str
    reads_io: bool
    sees_shared: bool
    measures_exactly: bool
    changes_rlimits: bool
    missing: tuple[str, ...]
    sees_mapped: bool = False


@dataclass(frozen=True, slots=True)
class LiveUsage:
    """A sandbox's or an execution's usage as of the last look; None for unknown values.

    of_running_only: CPU time and IO are those of running executions.
    """

    memory_bytes: int | None
    memory_peak_bytes: int | None
    cpu_seconds: float | None
    cpu_throttled_seconds: float | None
    pids: int | None
    pids_peak: int | None
    io_read_bytes: int | None
    io_written_bytes: int | None
    of_running_only: bool = False


@dataclass(frozen=True, slots=True)
class MemoryNow:
    """The memory in use, as the limit counts it."""

    ok: bool
    used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class UsageNow:
    """A sandbox's usage."""

    ok: bool
    usage: LiveUsage | None = None


@dataclass(frozen=True, slots=True)
class ExecutionsNow:
    """The usage of each running execution, by id; of the first 128."""

    ok: bool
    executions: Mapping[str, LiveUsage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Concluded:
    """The usage is written. verdict: on the execution, None for none."""

    ok: bool
    verdict: Verdict | None = None


Answer = Refused | Obeyed | Loaded | Greeting | MemoryNow | UsageNow | ExecutionsNow | Concluded
OBEYED = Codec(Obeyed)
LOADED = Codec(Loaded)
GREETING = Codec(Greeting)
MEMORY_NOW = Codec(MemoryNow)
USAGE_NOW = Codec(UsageNow)
EXECUTIONS_NOW = Codec(ExecutionsNow)
CONCLUDED = Codec(Concluded)


def is_of_this_protocol(greeting: bytes) -> bool:
    """Whether an answer to "hello", of whatever version, is that of a supervisor of PROTOCOL."""
    with suppress(ValueError):
        return objects.decode(greeting).get("protocol") == PROTOCOL
    return False
