# SPDX-License-Identifier: Apache-2.0
"""Progress: only where somebody sees it, only when it takes long, and nothing stays of it."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from sandboxd.ctl import progress
from sandboxd.ctl import waiting as module
from sandboxd.ctl.progress import counted
from sandboxd.ctl.waiting import waiting


class Screen(io.StringIO):
    """A terminal that tells when something is on it."""

    def __init__(self, *, is_terminal: bool = True) -> None:
        super().__init__()
        self.shown = threading.Event()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        self.shown.set()
        return super().write(text)


def test_a_long_wait_is_told_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.02)
    with waiting("making it"):
        assert screen.shown.wait(10)
    said = screen.getvalue()
    assert "sandboxctl: making it ... 0 s" in said
    assert said.endswith("\r\x1b[K")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_short_wait_or_one_unseen_is_not(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    screen = Screen(is_terminal=is_terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    before = set(threading.enumerate())
    with waiting("making it"):
        assert len(set(threading.enumerate()) - before) == is_terminal
    assert screen.getvalue() == ""
    assert not set(threading.enumerate()) - before


def test_bytes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    pieces = [bytes(1 << 20)] * 4
    assert list(counted(pieces, "[b]a\x1bname", 4 << 20)) == pieces
    said = screen.getvalue()
    assert "[b]a?name" in said
    assert "4.0/4.0 MiB" in said
    # Shown again, and the line erased (ECMA-48).
    assert said.endswith("\x1b[?25h\r\x1b[1A\x1b[2K")


def test_a_long_label_hides_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    assert list(counted([bytes(1 << 20)] * 4, "日" * 200, 4 << 20))
    assert "日 ... " in screen.getvalue()
    assert "4.0/4.0 MiB" in screen.getvalue()


def test_what_is_over_soon_needs_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 60.0)
    assert list(counted([b"x"], "name", None)) == [b"x"]
    assert screen.getvalue() == ""


def test_nothing_is_counted_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(is_terminal=False)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_PATIENCE_SECONDS", 0.0)
    assert list(counted([b"x"], "name", None)) == [b"x"]
    assert screen.getvalue() == ""
