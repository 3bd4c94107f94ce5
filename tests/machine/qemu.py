# SPDX-License-Identifier: Apache-2.0
"""How QEMU is started: one command line, one process, files in the machine's directory."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from . import recipe, tsc
from .host import MachineError
from .image import Image

CONSOLE = "console.log"
ERRORS = "qemu.log"
OVERLAY = "overlay.qcow2"
OVERLAY_SECONDS = 60.0
_DEATH = re.compile(r"Oops|Kernel panic|BUG:|RIP: 0010|initrd: |qemu|KVM internal error")


class Accelerator(StrEnum):
    """What runs the guest's instructions."""

    KVM = "kvm"
    TCG = "tcg"


@dataclass(frozen=True, slots=True)
class Options:
    """What may differ from machine to machine."""

    accelerator: Accelerator
    kernel_arguments: tuple[str, ...] = ()
    outlives_parent: bool = False


def start(image: Image, directory: Path, options: Options) -> subprocess.Popen[bytes]:
    """Start a machine whose disk is a new overlay in `directory`. Raises MachineError."""
    _make_overlay(image, directory)
    command = [] if options.outlives_parent else ["setpriv", "--pdeathsig", "KILL"]
    command += _qemu(image, options)
    with contextlib.ExitStack() as stack:
        errors = stack.enter_context((directory / ERRORS).open("wb"))
        ports = [stack.enter_context(_listen(directory, n)) for n in range(recipe.PORTS)]
        for number, port in enumerate(ports):
            name = f"port{number}"
            command += ["-chardev", f"socket,id={name},fd={port.fileno()},server=on,wait=off"]
            command += ["-device", f"virtserialport,chardev={name},name=machine.{name}"]
        return subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **image.emulator.environment()},
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            pass_fds=[port.fileno() for port in ports],
            start_new_session=True,
        )


@contextlib.contextmanager
def short_path(directory: Path) -> Iterator[str]:
    """Yield another path of `directory` that fits a socket's limit of 107 bytes."""
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def last_words(directory: Path) -> str:
    """Return what the guest's kernel or QEMU said of its end, or nothing."""
    found: list[str] = []
    for name in (CONSOLE, ERRORS):
        if (directory / name).exists():
            lines = (directory / name).read_text(errors="replace").splitlines()
            found += [line.strip() for line in lines if _DEATH.search(line)]
    return "; ".join(found[:4])


def _listen(directory: Path, number: int) -> socket.socket:
    # Listening before QEMU starts: a client never has to wait for the socket to appear.
    port = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(directory) as path:
        port.bind(f"{path}/port{number}.sock")
    port.listen(1)
    return port


def _make_overlay(image: Image, directory: Path) -> None:
    overlay = os.fspath(directory / OVERLAY)
    base = ["-F", "raw", "-b", os.fspath(image.root)]
    done = subprocess.run(
        [*image.emulator.image_tool(), "create", "-q", "-f", "qcow2", *base, overlay],
        capture_output=True,
        text=True,
        timeout=OVERLAY_SECONDS,
        check=False,
    )
    if done.returncode:
        raise MachineError(f"cannot make the machine's disk: {done.stderr.strip()}")


def _qemu(image: Image, options: Options) -> list[str]:
    accelerator = {
        Accelerator.KVM: ["-accel", "kvm", "-cpu", "host"],
        # Without "fast" string instructions, which the emulator runs byte by byte.
        Accelerator.TCG: ["-accel", "tcg,thread=multi,tb-size=1024", "-cpu", "max,-erms,-fsrm"],
    }[options.accelerator]
    counter = tsc.kernel_arguments() if options.accelerator is Accelerator.TCG else ()
    arguments = " ".join((*recipe.KERNEL_ARGUMENTS, *counter, *options.kernel_arguments))
    # The overlay dies with the machine, so nothing needs to reach the host's disk for sure.
    drive = f"file={OVERLAY},format=qcow2,if=none,id=root,cache=unsafe,discard=unmap"
    command = image.emulator.machine()
    command += ["-name", "sandboxd-machine", "-machine", "q35", *accelerator]
    command += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    command += ["-smp", str(recipe.CPUS), "-m", f"{recipe.MEMORY_BYTES // 1024**2}M"]
    command += ["-kernel", os.fspath(image.kernel), "-initrd", os.fspath(image.initrd)]
    command += ["-append", arguments, "-serial", f"file:{CONSOLE}"]
    command += ["-drive", drive, "-device", "virtio-blk-pci,drive=root"]
    command += ["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]
    return command
