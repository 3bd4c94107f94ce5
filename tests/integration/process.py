# SPDX-License-Identifier: Apache-2.0
"""Daemons that tests start in ways of their own: to be refused, private, or with a given socket."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.contract.probes import eventually
from tests.harness import ROOT, Daemon, request

START_SECONDS = 40.0
COMMAND = [sys.executable, "-m", "sandboxd"]


def environment(**settings: str) -> dict[str, str]:
    """The environment of a daemon that runs this checkout."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SANDBOX", "LISTEN_"))}
    return {**kept, "PYTHONPATH": str(ROOT), **settings}


def arguments(daemon: Daemon) -> list[str]:
    """Directories and socket of `daemon`."""
    return ["--socket", daemon.socket, "--state-dir", str(daemon.state),
            "--runtime-dir", str(daemon.runtime)]  # fmt: skip


def run_daemon(
    daemon: Daemon, *more: str, prefix: Sequence[str] = (), **settings: str
) -> tuple[int, str]:
    """Exit status and words of a daemon that must end by itself. prefix: runs the daemon."""
    # Not a pipe: helpers that outlive a daemon would keep it open.
    with daemon.log.open("w+") as log:
        done = subprocess.run(
            [*prefix, *COMMAND, *arguments(daemon), *more], env=environment(**settings),
            stdin=subprocess.DEVNULL, stderr=log, timeout=START_SECONDS, check=False,
        )  # fmt: skip
        log.seek(0)
        return done.returncode, log.read()


def refusal(daemon: Daemon, *more: str, **settings: str) -> str:
    """What a daemon says that must refuse to start."""
    status, words = run_daemon(daemon, *more, **settings)
    assert status not in {0, -6, -9, -11}, words
    assert "Traceback" not in words
    assert not os.path.exists(daemon.socket)
    return words


def answers(path: str) -> Any:
    """The answer of /readyz on this socket, None while nobody answers there."""
    with contextlib.suppress(OSError):
        answer = request(path, "GET", "/readyz", timeout=10)
        return answer if answer.status == 200 else None
    return None


@contextmanager
def unstarted(**settings: str) -> Iterator[Daemon]:
    """Directories for a daemon; whatever was started in them is ended."""
    daemon = Daemon(**settings)
    try:
        yield daemon
    finally:
        if daemon.process is not None or (
            daemon.runtime.exists() and any(daemon.runtime.iterdir())
        ):
            daemon.close()
        else:
            # Nothing got as far as to leave anything, or it took its directories with it.
            for directory in (daemon.state, daemon.runtime):
                if directory.exists():
                    shutil.rmtree(directory)
            daemon.log.unlink(missing_ok=True)


@contextmanager
def started(
    daemon: Daemon, command: list[str], **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of this command once it serves `daemon`'s socket; killed in the end if need be."""
    with daemon.log.open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, **options)
    try:
        eventually(lambda: answers(daemon.socket) or process.poll() is not None, START_SECONDS)
        assert process.poll() is None, daemon.log.read_text()
        yield process
    finally:
        if process.stdin is not None:
            process.stdin.close()
        process.terminate()
        try:
            process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
