# SPDX-License-Identifier: Apache-2.0
"""Rounds one after another on one state directory."""

from __future__ import annotations

import os
import sys
import time

from tests.chaos.round import Round
from tests.harness import running_daemon

LOG_CHARACTERS = 12_000


def play(mode: str, count: int) -> None:
    """Rounds 1 to `count`, or the one of SANDBOXD_CHAOS_SEED; each says what it does.

    mode: SANDBOX_CGROUP_MODE.
    """
    first = int(os.environ.get("SANDBOXD_CHAOS_FIRST") or 1)
    seeds = list(range(first, first + count))
    if only := os.environ.get("SANDBOXD_CHAOS_SEED"):
        seeds = [int(only)]
    with running_daemon(
        SANDBOX_CGROUP_MODE=mode, SANDBOX_MEMORY_LIMIT_BYTES="64M",
        SANDBOX_RETENTION_EXECUTIONS="300",
    ) as daemon:  # fmt: skip
        for seed in seeds:
            round_ = Round(daemon, seed)
            began = time.monotonic()
            sys.stderr.write(f"seed {seed}: {round_}")
            try:
                round_.run()
            except BaseException:
                text = daemon.log.read_text(errors="replace")
                sys.stderr.write(f"\n{text[-LOG_CHARACTERS:]}\n")
                raise
            times = sorted(round_.times.items(), key=lambda item: item[1])
            parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in times)
            sys.stderr.write(f": {time.monotonic() - began:.1f} s ({parts})\n")
