# SPDX-License-Identifier: Apache-2.0
"""Fields and safe text for log lines: the asking caller and the subject.

sandboxd/journal.py turns the fields into journal fields for `journalctl SANDBOX_ID=...`.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

# The key in `extra` of logging calls.
FIELDS = "journal_fields"


@dataclass(frozen=True, slots=True)
class Asked:
    """The request to which the present work belongs."""

    request_id: str
    uid: int
    pid: int

    def __str__(self) -> str:
        return f"asked by uid {self.uid}, pid {self.pid}, request {self.request_id}"


# Background work keeps the value of the request that started the work.
ASKED: ContextVar[Asked | None] = ContextVar("asked", default=None)


def asking() -> str:
    """Return the asking caller for the end of a line; empty without a request."""
    asked = ASKED.get()
    return "" if asked is None else f", {asked}"


def one_line(text: str) -> str:
    """Return untrusted text with control characters escaped, to end no line and move no cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def about(**fields: Any) -> dict[str, dict[str, Any]]:
    """Return `extra` for a logging call; None is left out, a list becomes a field per entry."""
    return {FIELDS: {name: value for name, value in fields.items() if value is not None}}
