# SPDX-License-Identifier: Apache-2.0
"""Commands of all kinds, and how each must end whatever happens to the daemon meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

# Perl is essential on Debian, and starts where others still read their libraries.
_COUNT = r"$|=1; for (0..$ARGV[0]) { print qq($_\n); select undef,undef,undef,0.05 } exit $ARGV[1]"
_FLOOD = (
    r"$|=1; for (1..$ARGV[0]) { printf qq(%015d%s\n), $_, q(x) x 16368;"
    r" select undef,undef,undef,0.0032 }"
)
_ECHO = r"$|=1; while (sysread STDIN, $b, 4096) { print $b; select undef,undef,undef,0.02 }"
_EAT = (
    r"$|=1; print qq(up\n);"
    r" for (1..400) { push @a, q(x) x 1048576; select undef,undef,undef,$ARGV[0] }"
)
INPUT = b"more\n"


@dataclass(frozen=True)
class Program:
    """What to ask for, and what must come of it. stdout None: whatever it got to print."""

    kind: str
    body: dict[str, Any]
    status: str
    stdout: bytes | None = None
    ends: dict[str, Any] = field(default_factory=dict)

    @property
    def ends_by_itself(self) -> bool:
        """Else the test kills it at the end."""
        return self.kind != "long"


def _perl(code: str, *arguments: object) -> list[str]:
    return ["/usr/bin/perl", "-e", code, *map(str, arguments)]


def counting(rng: random.Random) -> Program:
    """Prints numbers over some seconds, then exits with a code of its own."""
    last, code = rng.randrange(20, 120), rng.randrange(100)
    text = "".join(f"{n}\n" for n in range(last + 1)).encode()
    body = {"argv": _perl(_COUNT, last, code)}
    return Program("counting", body, "EXITED", text, {"exit_code": code})


def short(rng: random.Random) -> Program:
    """Over in a moment."""
    code = rng.randrange(100)
    body = {"command": f"echo short; exit {code}"}
    return Program("short", body, "EXITED", b"short\n", {"exit_code": code})


def flooding(rng: random.Random) -> Program:
    """Prints 5 MB/s."""
    blocks = rng.randrange(200, 600)
    text = b"".join(b"%015d%s\n" % (n, b"x" * 16368) for n in range(1, blocks + 1))
    return Program("flooding", {"argv": _perl(_FLOOD, blocks)}, "EXITED", text, {"exit_code": 0})


def echoing(rng: random.Random) -> Program:
    """Still reads its input, which the shim feeds."""
    text = "".join(f"line {n}\n" for n in range(rng.randrange(10_000, 30_000)))
    body = {"argv": _perl(_ECHO), "stdin": text}
    return Program("echoing", body, "EXITED", text.encode(), {"exit_code": 0})


def reading(rng: random.Random) -> Program:
    """Has its input open; the round writes to it after the kill, and closes it."""
    code = rng.randrange(100)
    body = {"command": f"echo up; cat; exit {code}", "stdin_open": True}
    return Program("reading", body, "EXITED", b"up\n" + INPUT, {"exit_code": code})


def timed(rng: random.Random) -> Program:
    """Runs into its timeout, by when an emulated processor must have got to the print."""
    seconds = rng.uniform(4.0, 8.0)
    body = {"command": "echo partial; exec sleep 300", "timeout_seconds": seconds}
    ends = {"error_code": "SANDBOX_TIMEOUT", "limit_owner": "execution"}
    return Program("timed", body, "TIMED_OUT", b"partial\n", ends)


def crashing(rng: random.Random) -> Program:
    """Dies of a signal of its own."""
    body = {"command": f"sleep {rng.uniform(0.2, 3):.2f}; kill -SEGV $$"}
    return Program("crashing", body, "SIGNALED", b"", {"signal": 11})


def leaving(rng: random.Random) -> Program:
    """Leaves a child behind."""
    body = {"command": f"sleep 300 & sleep {rng.uniform(0.2, 3):.2f}; exit 0"}
    return Program("leaving", body, "EXITED", b"", {"exit_code": 0, "leftovers_killed": 1})


def overflowing(rng: random.Random) -> Program:
    """Prints more than it may."""
    body = {"command": f"sleep {rng.uniform(0.2, 3):.2f}; exec yes", "max_output_bytes": 100_000}
    ends = {"error_code": "SANDBOX_OUTPUT_LIMIT_EXCEEDED"}
    return Program("overflowing", body, "OUTPUT_LIMIT", b"y\n" * 50_000, ends)


def spinning(rng: random.Random) -> Program:
    """Uses up its processor time."""
    limits = {"cpu_seconds": round(rng.uniform(0.3, 1.0), 2)}
    ends = {"error_code": "SANDBOX_CPU_TIME_LIMIT_EXCEEDED"}
    return Program(
        "spinning", {"command": "while :; do :; done", "limits": limits},
        "CPU_TIME_EXCEEDED", b"", ends,
    )  # fmt: skip


def eating(rng: random.Random) -> Program:
    """An OOM about to happen."""
    body = {"argv": _perl(_EAT, round(rng.uniform(0.01, 0.06), 3))}
    ends = {"error_code": "SANDBOX_MEMORY_LIMIT_EXCEEDED", "limit_owner": "sandbox"}
    return Program("eating", body, "OOM_KILLED", b"up\n", ends)


def long(rng: random.Random) -> Program:
    """Ends when somebody kills it."""
    body = {"command": "echo up; sleep 3000 & wait"}
    return Program("long", body, "KILLED", b"up\n", {"error_code": "KILLED_BY_CALLER"})


Maker = Callable[[random.Random], Program]
# Twenty together with the two that are suspended, the two that eat and the two runs.
MIXED: tuple[Maker, ...] = (
    counting, counting, short, flooding, flooding, echoing, reading, timed,
    crashing, leaving, overflowing, spinning, long, long,
)  # fmt: skip
