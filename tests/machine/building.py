# SPDX-License-Identifier: Apache-2.0
"""Run one step of a build: bounded, its output in a log, dead when the build dies."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .host import MachineError

STEP_SECONDS = 1800.0


def run(
    command: list[str],
    log: int,
    *,
    environment: dict[str, str] | None = None,
    accepted: tuple[int, ...] = (0,),
) -> None:
    """Raises MachineError with the end of the log when the status is not an accepted one."""
    done = subprocess.run(
        ["setpriv", "--pdeathsig", "KILL", *command],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
        timeout=STEP_SECONDS,
        check=False,
    )
    if done.returncode not in accepted:
        tail = "\n".join(
            Path(f"/proc/self/fd/{log}").read_text(errors="replace").splitlines()[-20:]
        )
        raise MachineError(f"cannot build the image: {command[0]} exited {done.returncode}\n{tail}")
