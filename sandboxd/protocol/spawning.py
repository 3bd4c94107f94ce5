# SPDX-License-Identifier: Apache-2.0
"""Requests to the spawner, and answers. One packet each, and descriptors beside it.

Every version understands the requests "hello" and "stop", and finds the other side's PROTOCOL under
"protocol" in the answer to "hello". All further messages are of one version.
"""

from contextlib import suppress
from dataclasses import dataclass

from sandboxd.osutil import objects
from sandboxd.protocol.codec import Kinds
from sandboxd.protocol.records import PROTOCOL


@dataclass(frozen=True, slots=True)
class Hello:
    """Asks for a Greeting."""


@dataclass(frozen=True, slots=True)
class Supervise:
    """Has a program kept running."""

    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Ends the spawner; shims go on."""


@dataclass(frozen=True, slots=True)
class Spawn:
    """Asks for a shim.

    Descriptors: a memfd with a shim's specification, the shim's listening control socket and, if
    there is one, a file with the command's input. Spawned comes with the shim's pidfd.
    """


@dataclass(frozen=True, slots=True)
class ForkBuilder:
    """Asks for a builder (building.py).

    Descriptors: a memfd with the order and a pipe for the answer. Done comes with the builder's
    pidfd.
    """


Request = Hello | Supervise | Stop | Spawn | ForkBuilder
REQUESTS: Kinds[Request] = Kinds(
    "op",
    {"hello": Hello, "supervise": Supervise, "stop": Stop, "spawn": Spawn, "build": ForkBuilder},
)


@dataclass(frozen=True, slots=True)
class Greeting:
    """The spawner's pid, and the number of running shims."""

    protocol: int
    pid: int
    shims: int


@dataclass(frozen=True, slots=True)
class Done:
    """The request is done."""


@dataclass(frozen=True, slots=True)
class Spawned:
    """A shim was forked. pid_namespace: whether the shim is PID 1 of a pid namespace."""

    pid: int
    pid_namespace: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The request was not done. errno: 0 where no system call failed."""

    errno: int
    text: str


Answer = Greeting | Done | Spawned | Refused
ANSWERS: Kinds[Answer] = Kinds(
    "answer", {"greeting": Greeting, "done": Done, "spawned": Spawned, "refused": Refused}
)


def is_of_this_protocol(greeting: bytes) -> bool:
    """Whether an answer to "hello", of whatever version, is that of a spawner of PROTOCOL."""
    with suppress(ValueError):
        return objects.decode(greeting).get("protocol") == PROTOCOL
    return False
