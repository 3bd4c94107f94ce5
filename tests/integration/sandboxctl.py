# SPDX-License-Identifier: Apache-2.0
"""sandboxctl of this checkout, as a process that asks a test's daemon."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from tests.harness import ROOT, Daemon

COMMAND = [sys.executable, "-P", "-m", "sandboxd.ctl.main"]
END_SECONDS = 90.0


def environment(daemon: Daemon) -> dict[str, str]:
    """The environment of a sandboxctl that asks `daemon`."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "SANDBOXD_SOCKET": daemon.socket}


def ctl(daemon: Daemon, *argv: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """A call without input that must exit with `code`."""
    done = subprocess.run(
        [*COMMAND, *argv], env=environment(daemon), stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=END_SECONDS,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done


def started(daemon: Daemon, *argv: str, **options: Any) -> subprocess.Popen[Any]:
    """A call that goes on. options: as of Popen; without `stdin` there is no input."""
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen([*COMMAND, *argv], env=environment(daemon), **options)
