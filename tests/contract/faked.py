# SPDX-License-Identifier: Apache-2.0
"""A daemon that runs no command: the API and the engine over the fakes of the engine's ports.

Command line and settings are sandboxd's. Commands do what PROGRAMS says, and end with the daemon.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from contextlib import closing
from datetime import UTC, datetime

from sandboxd.api.listener import listen
from sandboxd.api.server import serving
from sandboxd.core.levels import Findings, offers
from sandboxd.core.model import Command
from sandboxd.core.policy import Budget, TaskBudget
from sandboxd.daemon import config
from sandboxd.osutil.privileges import of_this_process
from sandboxd.records.keys import DiskKeys
from sandboxd.systemd import notify
from sandboxd.workspace.workers import Workers
from tests.unit.fakes.engine import running_engine
from tests.unit.fakes.programs import Program, always, known
from tests.unit.fakes.world import Disk, World

HOST_BYTES = 8 << 30
HOST_TASKS = TaskBudget(1 << 15, "a fake")


def echo(command: Command) -> Program:
    """Its arguments."""
    return Program(" ".join(command.argv[1:]).encode() + b"\n")


def sleep(command: Command) -> Program:
    """So many seconds."""
    return Program(seconds=float(command.argv[1]))


def count(command: Command) -> Program:
    """`wc -c`: bytes of its standard input."""
    return Program(b"%d\n" % len(command.stdin or b""))


PROGRAMS = {"true": always(Program()), "echo": echo, "sleep": sleep, "wc": count}


class Host(World):
    """A world with the time of this one."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


async def serve(arguments: argparse.Namespace, settings: config.Config) -> None:
    """Serve until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    budget = Budget(HOST_BYTES, settings.worker_memory_reserve_bytes)
    keys = DiskKeys(arguments.state_dir)
    keys.open()
    world = Host()
    world.programs = known(PROGRAMS)
    with closing(Workers("files", of_this_process())) as workers:
        world.disk = Disk(os.path.join(arguments.state_dir, "sandboxes"), workers)
        async with (
            running_engine(
                world,
                budget=budget,
                tasks=HOST_TASKS,
                policy=settings.limit_policy(budget, HOST_TASKS),
                offers=offers(Findings(is_root=True, kernel_limits=True), "auto"),
                max_executions=settings.max_executions,
            ) as engine,
            serving(
                engine,
                [listen(arguments.socket, gid=None, named_by="--socket")],
                keys=keys,
                own_uid=os.geteuid(),
            ),
        ):
            notify.choose().send(READY="1", STATUS="over fakes")
            await stop.wait()


def main() -> None:
    """With `--stop-all` nothing is left to do."""
    arguments = config.argument_parser().parse_args(sys.argv[1:])
    if not arguments.stop_all:
        asyncio.run(serve(arguments, config.load(arguments.config, os.environ)))


if __name__ == "__main__":
    main()
