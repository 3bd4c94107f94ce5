# SPDX-License-Identifier: Apache-2.0
"""Choose KVM only if it has booted this image on this host once; else emulate.

A /dev/kvm that opens may still not run a stock kernel (nested hosts answer with an internal
error in the middle of the boot), so the only proof is a boot.
"""

from __future__ import annotations

import fcntl
import os
import platform
from pathlib import Path

from .host import MachineError, cache_directory, say
from .image import Image
from .machine import Machine
from .qemu import Accelerator, Options

KVM = Path("/dev/kvm")
TRIAL_SECONDS = 30.0


def choose(image: Image) -> Accelerator:
    """Return the best accelerator, by a trial boot the first time on this host and kernel."""
    if not os.access(KVM, os.R_OK | os.W_OK):
        return Accelerator.TCG
    cache = cache_directory()
    with (cache / "accelerator.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = cache / f"accelerator-{platform.release()}"
        if not known.exists():
            known.write_text(_try_kvm(image))
        return Accelerator(known.read_text())


def _try_kvm(image: Image) -> Accelerator:
    say(f"trying KVM once, for at most {TRIAL_SECONDS:.0f} s")
    machine = Machine.named(f"kvm-trial-{os.getpid()}")
    try:
        machine.boot(image, Options(Accelerator.KVM), seconds=TRIAL_SECONDS)
    except MachineError as error:
        say(f"KVM does not boot here ({error}): emulating with TCG, now and from now on")
        return Accelerator.TCG
    finally:
        machine.remove()
    say("KVM boots here")
    return Accelerator.KVM
