# SPDX-License-Identifier: Apache-2.0
"""What a caller is told of a command that a shim could not start. Pure."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from sandboxd.errors import ExecutionNotStarted
from sandboxd.protocol.link import Failed

_STEP_TEXT = {
    "exec": "cannot execute {}",
    "cwd": "cannot enter the working directory {}",
}
_SHOWN_CHARACTERS = 256
_EMPTY_HOME = (
    "paths are the sandbox's own, and its home is empty at first: bring files in with "
    "`sandboxctl cp` or the files API"
)
_NO_PROGRAM = (
    f"{_EMPTY_HOME}, or give a script on standard input (`exec -i`); what only a shell knows, "
    "such as `cd` or a line with a pipe, needs `sh -c`"
)
_NO_INTERPRETER = "the program is there, what it names to run it is not in this sandbox"
_CRLF = "its lines end with CR LF: without the CR it would be found, `sed -i 's/\\r$//' FILE`"
_NOT_EXECUTABLE = (
    "only a file that the sandbox may execute is started: `chmod +x FILE`, or name its interpreter "
    "first"
)
_NO_FORMAT = "it is no program of this machine; a script begins with a line such as #!/bin/sh"
_HINTS = {
    ("exec", errno.ENOENT): _NO_PROGRAM,
    ("exec", errno.ENOTDIR): _NO_PROGRAM,
    ("exec", errno.EACCES): _NOT_EXECUTABLE,
    ("exec", errno.ENOEXEC): _NO_FORMAT,
    ("cwd", errno.ENOENT): _EMPTY_HOME,
}


def not_started(failed: Failed, subjects: Mapping[str, str]) -> ExecutionNotStarted:
    """Return the error for a shim's Failed. subjects: by step, the subject of the message."""
    step, number = failed.step, failed.errno
    cause = os.strerror(number) if number else failed.text
    subject = repr(subjects.get(step, "")[:_SHOWN_CHARACTERS])
    what = _STEP_TEXT.get(step, f"cannot set up the command ({step})").format(subject)
    details = {"step": step, "errno": number, "cause": cause, "text": failed.text}
    hint = _HINTS.get((step, number))
    interpreter = failed.interpreter
    if interpreter is not None:
        details["interpreter"] = interpreter
        what += f" for want of its interpreter, {interpreter!r}"
        hint = _CRLF if interpreter.endswith("\r") else _NO_INTERPRETER
    return ExecutionNotStarted(f"{what}: {cause}", hint=hint, details=details)
