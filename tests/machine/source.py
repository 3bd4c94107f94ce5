# SPDX-License-Identifier: Apache-2.0
"""Which files of a checkout go into the machine: what git tracks or would add, and packages."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from .host import MachineError

GIT_SECONDS = 60.0
# Built by `./dev deb [--bundled]`, for the test that installs it.
PACKAGES = "build/deb/sandboxd_*.deb"


def files(source: Path) -> list[str]:
    """Return the paths, relative to `source`, that exist. Raises MachineError."""
    done = subprocess.run(
        ["git", "-C", source, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        timeout=GIT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise MachineError(f"cannot list the checkout: {done.stderr.decode().strip()}")
    names = {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}
    names |= {str(path.relative_to(source)) for path in source.glob(PACKAGES)}
    return sorted(name for name in names if os.path.lexists(source / name))
