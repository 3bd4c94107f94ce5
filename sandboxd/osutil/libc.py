# SPDX-License-Identifier: Apache-2.0
"""The C library, for calls that the standard library has no name for."""

from __future__ import annotations

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, doing: str = "", path: str | bytes | None = None) -> int:
    """Return the result of a call of `libc`. Raises OSError for a negative result, by errno.

    doing, path: the failed action and the path concerned, for the message.
    """
    if result < 0:
        number = ctypes.get_errno()
        text = os.strerror(number)
        raise OSError(number, f"{doing}: {text}" if doing else text, path)
    return result
