# SPDX-License-Identifier: Apache-2.0
"""The form of one attempt, and the program that makes it and says what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LEVELS = ("basic", "standard", "strict")
# Results: `open` (it succeeded), the name of an errno, `hidden` (there was nothing to be seen),
# `refused` (by the program that was asked), the name of a signal.
OPEN = "open"
# What a kernel answers that lacks the part.
LACKING = frozenset({"ENOSYS", "EAFNOSUPPORT", "EPROTONOSUPPORT", "SIGSEGV"})


@dataclass(frozen=True)
class Attempt:
    """One attempt.

    code: a Python program that raises OSError, Hidden or Refused unless it succeeds. Expectations
    are results with `|` between what is equally good. inside: for each level. outside: what the
    same code gives to root on the host; it must be something else, or the attempt proves nothing.
    on_host_network: inside, where the sandbox has the host's network. needs: a fact without which
    there is nothing to try here. control_needs: the same for `outside` alone. rare: kernels
    without this part are in use; there the control has nothing to show.
    """

    name: str
    code: str
    inside: Mapping[str, str]
    outside: str = OPEN
    on_host_network: str | None = None
    needs: str | None = None
    control_needs: str | None = None
    rare: bool = False

    def expected(self, level: str, network: str) -> set[str]:
        """What may come of it."""
        if network == "host" and self.on_host_network is not None:
            return set(self.on_host_network.split("|"))
        return set(self.inside[level].split("|"))


def attempt(
    name: str,
    code: str,
    inside: str | None = None,
    *,
    basic: str | None = None,
    standard: str | None = None,
    strict: str | None = None,
    **more: Any,
) -> Attempt:
    """inside: at every level; else `basic`, `standard` and `strict` (as standard if not given)."""
    at_basic, at_standard = basic or inside, standard or inside
    assert at_basic is not None
    assert at_standard is not None
    levels = {"basic": at_basic, "standard": at_standard, "strict": strict or at_standard}
    return Attempt(name, code, levels, **more)


PRELUDE = """
import ctypes, errno, fcntl, glob, json, mmap, os, platform, resource, signal, socket, stat, struct
import subprocess, sys
facts, code = json.loads(sys.argv[1]), sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
class Hidden(Exception): pass
def hidden(): raise Hidden
class Refused(Exception): pass
def check(result):
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
def call(number, *arguments):
    if isinstance(number, tuple): number = number[platform.machine() != "x86_64"]
    words = [a if isinstance(a, (bytes, ctypes.Array)) or a is None else ctypes.c_long(a)
             for a in (*arguments, *[0] * 6)[:6]]
    return check(libc.syscall(ctypes.c_long(number), *words))
def become_nobody():
    if os.getuid() == 0:
        os.setgroups([]); os.setresgid(64123, 64123, 64123); os.setresuid(64123, 64123, 64123)
def connect(kind, address, family=socket.AF_UNIX):
    s = socket.socket(family, kind); s.settimeout(5); s.connect(address); return s
def output(*argv):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode: raise Refused(done.stderr)
    return done.stdout
try:
    exec(code)
    print("open")
except Hidden: print("hidden")
except Refused: print("refused")
except OSError as exc:
    if exc.errno is None: raise
    print(errno.errorcode[exc.errno])
"""


def argv(attempt: Attempt, facts: Mapping[str, Any], interpreter: str) -> list[str]:
    """The command that makes the attempt; its standard output is the result."""
    return [interpreter, "-IS", "-c", PRELUDE, json.dumps(facts), attempt.code]
