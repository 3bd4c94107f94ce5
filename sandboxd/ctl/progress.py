# SPDX-License-Identifier: Apache-2.0
"""How far something long is, on stderr, where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator

# What is over sooner needs no bar.
_PATIENCE_SECONDS = 0.3


def counted(pieces: Iterable[bytes], label: str, total_bytes: int | None) -> Iterator[bytes]:
    """`pieces`, counted as they go through; nothing is said where nobody sees it."""
    if not sys.stderr.isatty():
        yield from pieces
        return
    from sandboxd.ctl.pretty import Bar

    bar: Bar | None = None
    done = 0
    patient_until = time.monotonic() + _PATIENCE_SECONDS
    try:
        for piece in pieces:
            yield piece
            done += len(piece)
            if bar is None and time.monotonic() >= patient_until:
                bar = Bar(label, total_bytes)
            if bar is not None:
                bar.show(done)
    finally:
        if bar is not None:
            bar.stop()
