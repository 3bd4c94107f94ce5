# SPDX-License-Identifier: Apache-2.0
"""Files and messages that daemon, spawner and shim exchange. Standard library only.

Wire: JSON objects, one a packet, on SOCK_SEQPACKET Unix sockets; language-neutral, so that a
spawner or shim in another language can take a Python one's place.

An execution's record directory, root's alone:
  start.json   the shim's pid, start time and boot, written before it reports "ready"
  stdout, stderr   the output spools
  stdout.times, stderr.times   when output came (times.py); of a stream with output alone
  record.json  the raw facts of the end, written before the shim exits
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from sandboxd.osutil import objects
from sandboxd.osutil.files import temporary_name, write_whole

PROTOCOL = 6

START_FILE = "start.json"
RECORD_FILE = "record.json"
STDOUT_FILE = "stdout"
STDERR_FILE = "stderr"

# A packet holds no command, no output and no path: far below any socket buffer.
MAX_PACKET_BYTES = 16 * 1024
# The most argv and environment of a sandbox and an execution, each byte escaped.
MAX_SPEC_BYTES = 32 * 1024 * 1024
MAX_RECORD_BYTES = 16 * 1024
MAX_BUILDER_ANSWER_BYTES = 4096


def reserve_record(directory: str) -> None:
    """Reserve the disk space of an execution's record before the start. Raises OSError.

    The record must not be lost to a disk that the execution's output filled.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(temporary_name(os.path.join(directory, RECORD_FILE)), flags, 0o600)
    try:
        os.posix_fallocate(fd, 0, MAX_RECORD_BYTES)
    finally:
        os.close(fd)


def write_record(directory: str, value: dict[str, Any]) -> None:
    """Write the record into the reserved space. Raises OSError."""
    write_whole(os.path.join(directory, RECORD_FILE), objects.encode(value), keeps_space=True)


def read_json(directory: str, name: str) -> dict[str, Any] | None:
    """Return a start file or record; None where absent or damaged.

    A file that had not reached the disk when the host went down is empty or full of zeros.
    """
    with suppress(ValueError):
        return objects.read_json(directory, name)
    return None
