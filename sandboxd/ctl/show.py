# SPDX-License-Identifier: Apache-2.0
"""Output for people and for programs: tables and JSON on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from sandboxd.core.limits import BY_NAME, Unit
from sandboxd.core.quantity import format_bytes

# A line, or a table's header and rows.
Part = str | Sequence[Sequence[str]]


def print_json(answer: Any) -> None:
    """Print an answer as JSON."""
    print(json.dumps(answer, indent=2))


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a header and rows, fitted to a terminal's width."""
    print_parts([[header, *rows]])


def print_parts(parts: Sequence[Part]) -> None:
    """Print lines and tables; without a terminal as plain text, each row a line."""
    if sys.stdout.isatty():
        from sandboxd.ctl import pretty

        pretty.print_parts(parts)
        return
    for line in plain(parts):
        print(line)


def plain(parts: Sequence[Part]) -> list[str]:
    """Return lines and tables as lines."""
    found: list[str] = []
    for part in parts:
        found += [part] if isinstance(part, str) else table(part)
    return found


def number_of(number: int, one: str) -> str:
    """Return a number with a noun in the right form; the plural must be regular."""
    ending = "es" if one.endswith(("x", "s")) else "s"
    return f"{number} {one}{'' if number == 1 else ending}"


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines with aligned columns."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def printable(text: str) -> str:
    """Return `text` without characters that a terminal would obey."""
    return "".join(char if char.isprintable() else "?" for char in text)


def command_line(argv: Sequence[str], *, width: int = 60) -> str:
    """Return an argv in shell syntax, shortened to `width`."""
    import shlex

    line = printable(shlex.join(argv))
    return line if len(line) <= width else f"{line[: width - 3]}..."


def age(time: str | None) -> str:
    """Return the time since an RFC 3339 time, for people."""
    if time is None:
        return "-"
    from datetime import UTC, datetime

    then = datetime.fromisoformat(time)
    return duration(max(0.0, (datetime.now(UTC) - then).total_seconds()))


def duration(seconds: float) -> str:
    """Return seconds for people, in one unit."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2f} s"


def limit_value(name: str, value: float | None) -> str:
    """Return a limit's value with its unit."""
    if value is None:
        return "none"
    # A newer server may have limits unknown here.
    match BY_NAME[name].unit if name in BY_NAME else None:
        case Unit.BYTES:
            return format_bytes(int(value))
        case Unit.BYTES_PER_SECOND:
            return f"{format_bytes(int(value))}/s"
        case Unit.SECONDS:
            return f"{value:g} s"
    return f"{value:g}"
