# SPDX-License-Identifier: Apache-2.0
"""This terminal for an execution: raw mode, size changes passed on, keys to detach."""

from __future__ import annotations

import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from sandboxd.client import routes
from sandboxd.client.calls import Client, JsonObject
from sandboxd.ctl.feed import Feed
from sandboxd.ctl.printer import Printer
from sandboxd.errors import InvalidRequest, SandboxdError

# Control-P, control-Q, as in Docker.
DETACH_KEYS = b"\x10\x11"
_PIECE_BYTES = 4096
# A signal that no terminal sends.
_DETACH_SIGNAL = signal.SIGUSR1


class Detached(Exception):
    """Raised in the main thread when the detach keys were typed."""


def size(otherwise: str = "leave -t out") -> dict[str, int]:
    """Return rows and columns of standard input. Raises InvalidRequest with this hint."""
    if not sys.stdin.isatty():
        raise InvalidRequest(
            "cannot give the program a terminal: standard input is no terminal", hint=otherwise
        )
    columns, rows = os.get_terminal_size(sys.stdin.fileno())
    # A terminal whose size was never set has 0 and 0.
    return {"rows": rows or 24, "cols": columns or 80}


def resize(client: Client, execution: JsonObject, size: dict[str, int]) -> None:
    """Set the size of the program's terminal; most programs then redraw."""
    client.ask(routes.resize(execution["sandbox_id"], execution["id"], **size))


@contextmanager
def raw(client: Client, execution: JsonObject) -> Iterator[None]:
    """Pass every key and every change of size to the program; restore the terminal at the end."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def follow_size(_number: int, _frame: FrameType | None) -> None:
        # A failed resize is obsolete: the next change sends the current size.
        with suppress(SandboxdError):
            resize(client, execution, size())

    def detach(_number: int, _frame: FrameType | None) -> None:
        raise Detached

    handler = signal.signal(signal.SIGWINCH, follow_size)
    signal.signal(_DETACH_SIGNAL, detach)
    try:
        # TCSADRAIN and not TCSAFLUSH: keys typed before are input of the program, too.
        tty.setraw(descriptor, termios.TCSADRAIN)
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
        # Not restored to the default action, which ends the process: the keys may still be typed.
        signal.signal(_DETACH_SIGNAL, signal.SIG_IGN)


def in_terminal(client: Client, execution: JsonObject, printer: Printer) -> bool:
    """Run the execution at this terminal to the end; return True if detached."""
    try:
        with raw(client, execution):
            Feed(client, execution, Keys().read, is_lossy=True).start()
            printer.follow(client, execution)
    except Detached:
        return True
    return False


class Keys:
    """Typed keys, up to the detach keys."""

    def __init__(self) -> None:
        self._held = b""

    def read(self) -> bytes | None:
        """Return the next keys; b"" when the terminal hung up, None when detached."""
        while True:
            typed = os.read(sys.stdin.fileno(), _PIECE_BYTES)
            if not typed:
                return b""
            passed, is_left = self.filter(typed)
            if is_left:
                # Only a signal interrupts the main thread's wait for output.
                signal.pthread_kill(threading.main_thread().ident or 0, _DETACH_SIGNAL)
                return None
            if passed:
                return passed

    def filter(self, typed: bytes) -> tuple[bytes, bool]:
        """Return the keys to pass on, and whether to detach; a first detach key is held back."""
        data = self._held + typed
        before, found, _ = data.partition(DETACH_KEYS)
        if found:
            return before, True
        self._held = DETACH_KEYS[:1] if data.endswith(DETACH_KEYS[:1]) else b""
        return data.removesuffix(self._held), False
