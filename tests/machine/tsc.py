# SPDX-License-Identifier: Apache-2.0
"""The frequency of the host's time-stamp counter, which an emulated machine reads as its own.

A guest's kernel measures the counter against an emulated timer. Where a busy host lets the emulator
wait meanwhile, the result is far too low and the guest's clock several times too fast: all that has
a time limit there fails. tsc_early_khz= tells the kernel (Documentation/admin-guide/
kernel-parameters.txt).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable

# rdtsc; shl rdx, 32; or rax, rdx; ret
_READ = bytes.fromhex("0f31 48c1e220 4809d0 c3")
_SECONDS = 0.1
_TRIES = 50


def kernel_arguments() -> tuple[str, ...]:
    """Return what tells an emulated machine's kernel; nothing on other processors."""
    if os.uname().machine != "x86_64":
        return ()
    return (f"tsc_early_khz={kilohertz()}",)


def kilohertz() -> int:
    """Measure the counter against the monotonic clock, to about a hundred thousandth."""
    with mmap.mmap(
        -1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    ) as page:
        page.write(_READ)
        start = ctypes.c_char.from_buffer(page)
        try:
            read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(start))
            first, began = _both(read)
            time.sleep(_SECONDS)
            last, ended = _both(read)
        finally:
            # The mapping cannot be closed while a view of it lives.
            del start
    return round((last - first) * 1_000_000 / (ended - began))


def _both(read: Callable[[], int]) -> tuple[int, int]:
    """Return the counter and the clock in nanoseconds at one moment, by the quickest try."""
    tries = []
    for _ in range(_TRIES):
        before = time.monotonic_ns()
        counter = read()
        after = time.monotonic_ns()
        tries.append((after - before, counter, (before + after) // 2))
    _, counter, at = min(tries)
    return counter, at
