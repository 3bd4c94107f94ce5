# SPDX-License-Identifier: Apache-2.0
"""SIGINT, SIGTERM and SIGHUP as an exception, where it may come."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

from sandboxd.ctl.exits import Interrupted as Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """While entered, the signals raise Interrupted; `held` puts the first one off."""

    def __init__(self) -> None:
        self._put_off: int | None = None
        self._is_held = False
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_exc: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Put a signal off until the end of this; a second one is not put off."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            number, self._put_off = self._put_off, None
        if number is not None:
            raise Interrupted(number)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if not self._is_held or self._put_off is not None:
            raise Interrupted(number)
        self._put_off = number
