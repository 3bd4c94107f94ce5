# SPDX-License-Identifier: Apache-2.0
"""The C library, for calls that the standard library has no name for."""

from __future__ import annotations

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, doing: str = "", path: str | bytes | None = None) -> int:
    """The result of a call of `libc`. Raises OSError for a negative one, with errno of this thread;
    doing: what failed, for the message; path: what it failed on."""
    if result < 0:
        number = ctypes.get_errno()
        text = os.strerror(number)
        raise OSError(number, f"{doing}: {text}" if doing else text, path)
    return result
