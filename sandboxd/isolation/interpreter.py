# SPDX-License-Identifier: Apache-2.0
"""Explain why an existing program cannot be executed: its interpreter is missing.

Runs in the child that failed to become the program, with the sandbox's own rights: the sandbox can
write every file that is read here.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

# The kernel reads 256 bytes to recognize a format (BINPRM_BUF_SIZE, linux/binfmts.h).
_HEAD_BYTES = 256
_MAX_CHARACTERS = 128
_ELF = b"\x7fELF"
LOADER = "the loader of its ELF header"


def needed_by(program: str, env: Mapping[str, str]) -> str | None:
    """Return the interpreter that a program names; None if the program is absent or names none."""
    path = _find(program, env)
    if path is None:
        return None
    try:
        # Opening a FIFO would block.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        head = os.read(fd, _HEAD_BYTES) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        return None
    finally:
        os.close(fd)
    if head.startswith(_ELF):
        return LOADER
    words = head[2:].split(b"\n")[0].strip(b" \t").replace(b"\t", b" ").split(b" ")
    if not head.startswith(b"#!") or not words[0]:
        return None
    return words[0].decode(errors="backslashreplace")[:_MAX_CHARACTERS]


def _find(program: str, env: Mapping[str, str]) -> str | None:
    """Return the program's path, found as execvp(3) does."""
    if "/" in program:
        paths = [program]
    else:
        paths = [os.path.join(directory, program) for directory in os.get_exec_path(env)]
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), None)
