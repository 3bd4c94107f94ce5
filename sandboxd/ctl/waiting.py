# SPDX-License-Identifier: Apache-2.0
"""Progress of a long wait, on a terminal's stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Shorter waits show no message.
_PATIENCE_SECONDS = 1.0
_LINE = "\r{}\x1b[K"


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show `what` during a block that takes long; without a terminal on stderr, do not."""
    if not sys.stderr.isatty():
        yield
        return
    # Imported late: a call without a terminal needs no thread.
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
