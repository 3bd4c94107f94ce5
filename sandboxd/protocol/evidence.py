# SPDX-License-Identifier: Apache-2.0
"""Files in which a supervisor reports an execution's verdict and usage to the shim.

The directory is the execution's own, below the runtime directory: a full or slow disk must delay
neither a verdict nor the supervisor's next look.

  verdict.json     why the supervisor ended the execution; written before the first kill
  supervised.json  the usage measured so far; written about once a second and when the shim asks

The shim copies both into its record. Supervisors and shims of the release before write and copy
them as well: fields that are added here need defaults.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from sandboxd.protocol.codec import Codec

VERDICT_FILE = "verdict.json"
USAGE_FILE = "supervised.json"
SOCKET_NAME = "supervisor.sock"


class Reason(StrEnum):
    """The limits on a sum for which a supervisor kills."""

    OOM = "oom"
    CPU_TIME = "cpu_time"


class Owner(StrEnum):
    """Whose limit: the sandbox's or the execution's own."""

    SANDBOX = "sandbox"
    EXECUTION = "execution"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a supervisor killed, with limit and use in the limit's unit."""

    reason: Reason
    owner: Owner
    limit_bytes: int | None = None
    used_bytes: int | None = None
    limit_seconds: float | None = None
    used_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class MeasuredUsage:
    """An execution's usage by a supervisor's looks; None for values that were not measured."""

    FORMER_NAMES: ClassVar[Mapping[str, str]] = {
        "memory_peak": "memory_peak_bytes",
        "io_read": "io_read_bytes",
        "io_written": "io_written_bytes",
    }
    memory_peak_bytes: int | None
    pids_peak: int | None
    cpu_seconds: float | None
    io_read_bytes: int | None
    io_written_bytes: int | None
    cpu_throttled_seconds: float | None
    oom_kills: int | None


VERDICT = Codec(Verdict)
USAGE = Codec(MeasuredUsage)


def socket_path(runtime_directory: str) -> str:
    """Return the path of the supervisor's socket."""
    return os.path.join(runtime_directory, SOCKET_NAME)
