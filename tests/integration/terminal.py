# SPDX-License-Identifier: Apache-2.0
"""sandboxctl on a terminal that a test types on and reads from."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

from tests.harness import Daemon
from tests.integration.sandboxctl import environment

END_SECONDS = 60.0
# A leader of its session takes the terminal on 0 as its controlling one (TIOCSCTTY, tty_ioctl(4)).
START = (
    "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "from sandboxd.ctl.main import main; sys.exit(main())"
)


class Terminal:
    """A process with a terminal, and what was on it so far."""

    def __init__(self, daemon: Daemon, *argv: str, rows: int = 30, cols: int = 90) -> None:
        self.screen = b""
        self._master, side = pty.openpty()
        self.resize(rows, cols)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, *argv],
            stdin=side, stdout=side, stderr=side, start_new_session=True,
            # Its size is the terminal's, whatever the runner of the tests says of its own.
            env={**environment(daemon), "TERM": "vt100", "COLUMNS": "", "LINES": ""},
        )  # fmt: skip
        self._side = side

    def resize(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def wait_for(self, text: str) -> None:
        """Until it is on the screen, behind what was waited for before."""
        give_up = time.monotonic() + END_SECONDS
        while text.encode() not in self.screen:
            left = give_up - time.monotonic()
            readable, _, _ = select.select([self._master], [], [], max(left, 0))
            assert readable, f"{text!r} is not in {self.screen[-2000:]!r}"
            self.screen += os.read(self._master, 65536)
        self.screen = self.screen.partition(text.encode())[2]

    def is_quiet(self, seconds: float) -> bool:
        """Whether nothing comes for so long."""
        return not select.select([self._master], [], [], seconds)[0]

    def modes(self) -> list[object]:
        """As tcgetattr(3) gives them."""
        return termios.tcgetattr(self._side)

    def is_raw(self) -> bool:
        local: int = termios.tcgetattr(self._side)[3]
        return not local & (termios.ICANON | termios.ECHO | termios.ISIG)

    def end(self) -> int:
        """The exit status."""
        code = self.process.wait(END_SECONDS)
        os.close(self._master)
        os.close(self._side)
        return code
