# SPDX-License-Identifier: Apache-2.0
"""Progress of long transfers, on stderr, if stderr is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator

# Shorter transfers show no bar.
_PATIENCE_SECONDS = 0.3


def counted(pieces: Iterable[bytes], label: str, total_bytes: int | None) -> Iterator[bytes]:
    """Iterate over `pieces` and show the bytes passed, if stderr is a terminal."""
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
