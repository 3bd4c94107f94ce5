# SPDX-License-Identifier: Apache-2.0
"""Commands in a machine of their own: boot, copy in, run, save what they left, stop."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import accelerator, image, qemu, recipe
from .channel import MachineDied
from .host import MachineError, cache_directory, say
from .machine import Machine
from .wire import Frame

BOOT_SECONDS = 300.0  # ten times what an idle host needs
JOURNAL_SECONDS = 60.0
# Only for a guest that died before the command began; nothing of the command is ever repeated.
BOOTS = 2
_PREFIX = "run-"
_JOURNAL = ["journalctl", "--no-pager", "--output=short-monotonic"]


@dataclass(frozen=True, slots=True)
class Job:
    """What to run and where its results go."""

    commands: list[list[str]]
    source: Path
    output: Path
    seconds: float
    environment: dict[str, str]
    suite: str
    kernel_arguments: tuple[str, ...]


def run(job: Job) -> list[int]:
    """Run its commands in turn, `seconds` in all, and return their exit statuses.

    Raises MachineError when there are none.
    """
    with _booted(job) as machine:
        deadline = time.monotonic() + job.seconds
        statuses = []
        try:
            for argv in job.commands:
                left = deadline - time.monotonic()
                statuses.append(machine.run(argv, job.environment, seconds=left))
            return statuses
        finally:
            _save(machine, job.output)


@contextmanager
def _booted(job: Job) -> Iterator[Machine]:
    _remove_abandoned()
    machine = Machine.named(f"{_PREFIX}{os.getpid()}")
    try:
        boot(machine, job.suite, job.kernel_arguments)
        machine.copy_in(job.source)
        yield machine
    finally:
        machine.stop()
        job.output.mkdir(parents=True, exist_ok=True)
        for name in (qemu.CONSOLE, qemu.ERRORS):
            if (machine.directory / name).exists():
                shutil.copyfile(machine.directory / name, job.output / name)
        machine.remove()


def _remove_abandoned() -> None:
    """Remove machines of runs that were killed, whose QEMU died with them."""
    for directory in cache_directory().glob(f"machines/{_PREFIX}*"):
        pid = directory.name.removeprefix(_PREFIX)
        if not Path("/proc", pid).exists():
            Machine(directory).remove()


def boot(
    machine: Machine,
    suite: str,
    kernel_arguments: tuple[str, ...],
    *,
    outlives_parent: bool = False,
) -> None:
    """Build the image if needed and boot it, once more if the guest dies before it answers."""
    built = image.ensure(suite)
    chosen = accelerator.choose(built)
    options = qemu.Options(chosen, kernel_arguments, outlives_parent=outlives_parent)
    for left in reversed(range(BOOTS)):
        try:
            machine.boot(built, options, seconds=BOOT_SECONDS)
        except MachineDied as error:
            if not left:
                raise
            say(f"{error}; nothing had run in it, starting it once more")
        else:
            return


def save(machine: Machine, output: Path) -> None:
    """Save the journal, and what the command put into the output directory, below `output`.

    `output` itself may hold other things; its subdirectory `output` is made equal.
    """
    output.mkdir(parents=True, exist_ok=True)
    with (output / "journal.txt").open("wb") as journal:

        def take(frame: Frame) -> None:
            journal.write(frame.payload)

        machine.run(_JOURNAL, {}, seconds=JOURNAL_SECONDS, take=take)
    machine.fetch(recipe.OUTPUT_DIRECTORY, output / "output")


def _save(machine: Machine, output: Path) -> None:
    try:
        save(machine, output)
    except MachineError as error:
        say(f"cannot save journal and output: {error}")
    else:
        say(f"journal and output are in {output}")
