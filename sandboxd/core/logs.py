# SPDX-License-Identifier: Apache-2.0
"""Facts that go with a log line: who asked, and what it is about; and what may be in its text.

sandboxd/journal.py makes fields of them that `journalctl SANDBOX_ID=...` finds.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

# The key in `extra` of logging calls.
FIELDS = "journal_fields"


@dataclass(frozen=True, slots=True)
class Asked:
    """The request that what is done now belongs to."""

    request_id: str
    uid: int
    pid: int

    def __str__(self) -> str:
        return f"asked by uid {self.uid}, pid {self.pid}, request {self.request_id}"


# Background work keeps that of the request that began it.
ASKED: ContextVar[Asked | None] = ContextVar("asked", default=None)


def asking() -> str:
    """Who asked, as the end of a line; empty where nobody did."""
    asked = ASKED.get()
    return "" if asked is None else f", {asked}"


def one_line(text: str) -> str:
    """What a stranger wrote, as a part of one line: no character of it ends the line or moves the
    cursor of a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def about(**fields: Any) -> dict[str, dict[str, Any]]:
    """`extra` for a logging call; None is left out, a list gives a field of each entry."""
    return {FIELDS: {name: value for name, value in fields.items() if value is not None}}
