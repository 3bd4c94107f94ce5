# SPDX-License-Identifier: Apache-2.0
"""What the machine needs from the host: a cache directory, programs, a place to speak."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from . import recipe

INSTALL_SECONDS = 900.0


class MachineError(Exception):
    """The machine could not do what was asked; no statement about the command it was to run."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def say(text: str) -> None:
    """Tell the person on stderr; stdout belongs to the command inside."""
    sys.stderr.write(f"machine: {text}\n")
    sys.stderr.flush()


def cache_directory() -> Path:
    """Return the directory for images and machines, made if missing."""
    if given := os.environ.get("SANDBOXD_MACHINE_CACHE"):
        cache = Path(given)
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        cache = Path(base, "sandboxd", "machine")
    cache.mkdir(parents=True, exist_ok=True)
    return cache.resolve()


def install_programs() -> None:
    """Install the host's missing programs when root. Raises MachineError when not possible."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))
    os.environ["PATH"] = path
    missing = {
        package for program, package in recipe.HOST_PROGRAMS.items() if not shutil.which(program)
    }
    missing |= {package for file, package in recipe.HOST_FILES.items() if not Path(file).exists()}
    if not missing:
        return
    install = ["apt-get", "install", "--yes", "--no-install-recommends", *sorted(missing)]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise MachineError(
            f"cannot use the machine: this host lacks {', '.join(sorted(missing))}",
            hint=f"run: sudo {' '.join(install)}",
        )
    for command in (["apt-get", "update"], install):
        say(f"installing on this host: {' '.join(command)}")
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            timeout=INSTALL_SECONDS,
            check=False,
        )
        if done.returncode:
            raise MachineError(f"cannot install packages: {command[0]} exited {done.returncode}")
