# SPDX-License-Identifier: Apache-2.0
"""Orders to a shim and its events, over the shim's control socket.

A shim lives through an upgrade of the daemon: fields that are added here need defaults, and names
on the wire stay.
"""

from dataclasses import dataclass

from sandboxd.protocol.codec import Codec, Kinds


@dataclass(frozen=True, slots=True)
class Go:
    """Start the command."""


@dataclass(frozen=True, slots=True)
class Kill:
    """End the execution. code: a core.model.ErrorCode, for the record."""

    code: str
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class SendSignal:
    """Send a signal to the main process, or to the main process's group."""

    signal: int
    group: bool = False


@dataclass(frozen=True, slots=True)
class Freeze:
    """Stop every process, and the execution's clock. Frozen follows."""


@dataclass(frozen=True, slots=True)
class Thaw:
    """Continue processes and clock. Thawed follows."""


@dataclass(frozen=True, slots=True)
class ShareInput:
    """Ask for a copy of the input's descriptor, beside Answered."""

    id: int


@dataclass(frozen=True, slots=True)
class CloseInput:
    """Close the shim's copy of the input. Answered follows."""

    id: int


@dataclass(frozen=True, slots=True)
class Resize:
    """Change the size of the terminal, in characters. Answered follows."""

    id: int
    rows: int
    cols: int


Order = Go | Kill | SendSignal | Freeze | Thaw | ShareInput | CloseInput | Resize
ORDERS: Kinds[Order] = Kinds(
    "op",
    {
        "go": Go,
        "kill": Kill,
        "signal": SendSignal,
        "freeze": Freeze,
        "thaw": Thaw,
        "input": ShareInput,
        "close_input": CloseInput,
        "resize": Resize,
    },
)


@dataclass(frozen=True, slots=True)
class Ready:
    """The shim can be placed. missing: what this host does not allow a shim, in words."""

    pid_namespace: bool
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """The command runs. at: seconds since 1970."""

    at: float


@dataclass(frozen=True, slots=True)
class Failed:
    """The command could not be started.

    errno: 0 where no system call failed. interpreter: the missing one of a program that exists.
    """

    step: str
    errno: int
    text: str
    interpreter: str | None = None


@dataclass(frozen=True, slots=True)
class Frozen:
    """complete: whether every process stands still."""

    complete: bool


@dataclass(frozen=True, slots=True)
class Thawed:
    """Every process may go on."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to the order of this id; is_open and is_terminal tell of the input."""

    id: int
    is_open: bool = False
    is_terminal: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The record is written."""


Event = Ready | Started | Failed | Frozen | Thawed | Answered | Ended
EVENTS: Kinds[Event] = Kinds(
    "event",
    {
        "ready": Ready,
        "started": Started,
        "failed": Failed,
        "frozen": Frozen,
        "thawed": Thawed,
        "answer": Answered,
        "ended": Ended,
    },
)
# Also from the command's process to the shim, before the exec.
FAILURE = Codec(Failed)
