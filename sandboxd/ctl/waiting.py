# SPDX-License-Identifier: Apache-2.0
"""What is being waited for, on a terminal's stderr, once it takes long."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Shorter waits are nobody's concern.
_PATIENCE_SECONDS = 1.0
_LINE = "\r{}\x1b[K"


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Around something that may take long; where stderr is no terminal, nothing is said."""
    if not sys.stderr.isatty():
        yield
        return
    # Not among what a short command loads.
    import threading

    is_over = threading.Event()

    def show() -> None:
        seconds = 0.0
        while not is_over.wait(_PATIENCE_SECONDS):
            seconds += _PATIENCE_SECONDS
            text = f"sandboxctl: {what} ... {seconds:.0f} s"
            print(_LINE.format(text), end="", file=sys.stderr, flush=True)
        if seconds:
            print(_LINE.format(""), end="", file=sys.stderr, flush=True)

    thread = threading.Thread(target=show, name="waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
