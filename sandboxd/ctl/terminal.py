# SPDX-License-Identifier: Apache-2.0
"""This terminal as the one of an execution: raw, its size passed on, with keys to leave it by."""

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

# Control-P, control-Q, as Docker's users know it.
DETACH_KEYS = b"\x10\x11"
_PIECE_BYTES = 4096
# Never sent to us by a terminal.
_DETACH_SIGNAL = signal.SIGUSR1


class Detached(Exception):
    """Raised in the main thread when the keys were typed."""


def size(otherwise: str = "leave -t out") -> dict[str, int]:
    """Rows and columns of the terminal on standard input. Raises InvalidRequest.

    otherwise: what to do where there is no terminal.
    """
    if not sys.stdin.isatty():
        raise InvalidRequest(
            "cannot give the program a terminal: standard input is no terminal", hint=otherwise
        )
    columns, rows = os.get_terminal_size(sys.stdin.fileno())
    # A terminal that nobody told its size has 0 and 0.
    return {"rows": rows or 24, "cols": columns or 80}


def resize(client: Client, execution: JsonObject, size: dict[str, int]) -> None:
    """Tell the program of the terminal's size; most draw anew then."""
    client.ask(routes.resize(execution["sandbox_id"], execution["id"], **size))


@contextmanager
def raw(client: Client, execution: JsonObject) -> Iterator[None]:
    """Every key goes to the program, and every change of size. Restored at the end."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def follow_size(_number: int, _frame: FrameType | None) -> None:
        # One that fails is of no use to anybody by now: the next one says more.
        with suppress(SandboxdError):
            resize(client, execution, size())

    def detach(_number: int, _frame: FrameType | None) -> None:
        raise Detached

    handler = signal.signal(signal.SIGWINCH, follow_size)
    signal.signal(_DETACH_SIGNAL, detach)
    try:
        # What was typed before is for the program, too: not TCSAFLUSH.
        tty.setraw(descriptor, termios.TCSADRAIN)
        yield
    finally:
        with suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
        # Not as before, which may be to end: the keys may still be typed.
        signal.signal(_DETACH_SIGNAL, signal.SIG_IGN)


def in_terminal(client: Client, execution: JsonObject, printer: Printer) -> bool:
    """Have the execution use this terminal to its end; True when it was left running."""
    try:
        with raw(client, execution):
            Feed(client, execution, Keys().read, is_lossy=True).start()
            printer.follow(client, execution)
    except Detached:
        return True
    return False


class Keys:
    """What is typed, up to the keys that leave the terminal."""

    def __init__(self) -> None:
        self._held = b""

    def read(self) -> bytes | None:
        """The next keys; b"" when the terminal is gone, None when it was left."""
        while True:
            typed = os.read(sys.stdin.fileno(), _PIECE_BYTES)
            if not typed:
                return b""
            passed, is_left = self.filter(typed)
            if is_left:
                # Nothing else interrupts its wait for output.
                signal.pthread_kill(threading.main_thread().ident or 0, _DETACH_SIGNAL)
                return None
            if passed:
                return passed

    def filter(self, typed: bytes) -> tuple[bytes, bool]:
        """What of it is for the program, and whether the keys were typed.

        A first key that may begin them is kept until the next one is known.
        """
        data = self._held + typed
        before, found, _ = data.partition(DETACH_KEYS)
        if found:
            return before, True
        self._held = DETACH_KEYS[:1] if data.endswith(DETACH_KEYS[:1]) else b""
        return data.removesuffix(self._held), False
