# SPDX-License-Identifier: Apache-2.0
"""SIGINT, SIGTERM and SIGHUP as exceptions, at safe points."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self

from sandboxd.ctl.exits import Interrupted as Interrupted

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """A context in which signals raise Interrupted, but for the first of `held` and `passing`."""

    def __init__(self) -> None:
        self._put_off: int | None = None
        self._is_held = False
        self._first: Callable[[int], None] | None = None
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
        """Delay the first signal to the end of the block; a second signal is not delayed."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            number, self._put_off = self._put_off, None
        if number is not None:
            self._deliver(number)

    @contextmanager
    def passing(self, first: Callable[[int], None]) -> Iterator[None]:
        """Call `first` with the number of the first signal, which then raises no exception."""
        self._first = first
        try:
            yield
        finally:
            self._first = None

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if not self._is_held:
            self._deliver(number)
        elif self._put_off is None:
            self._put_off = number
        else:
            raise Interrupted(number)

    def _deliver(self, number: int) -> None:
        first, self._first = self._first, None
        if first is None:
            raise Interrupted(number)
        first(number)
