# SPDX-License-Identifier: Apache-2.0
"""Columns that a table drops when a terminal is too narrow."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxd.ctl.show import printable

_GAP_CELLS = 2
# Columns of all tables, least important first; an unlisted column is never dropped.
_LEAST_WORTH = (
    "PRESSURE c/m/io", "WRITE/s", "READ/s", "DISK", "RUNNING", "OF LIMIT", "PIDS", "CPUS",
    "ISOLATION", "WALL", "EXIT", "SANDBOX", "CPU s", "CPU TIME", "PEAK", "AGE",
    "MEMORY", "OWNER", "EXECUTION",
)  # fmt: skip
# Minimum cells of columns whose text may be cut.
_LEAST_CELLS = {"COMMAND": 16, "VERDICT": 24, "NAME": 16}


def fit(table: Sequence[Sequence[str]], width: int) -> list[tuple[str, ...]]:
    """Drop the least important columns until the table fits into `width` cells."""
    header = table[0]
    columns = zip(*table, strict=True)
    sizes = {
        name: max(len(printable(cell)) for cell in column)
        for name, column in zip(header, columns, strict=True)
    }
    sizes |= {name: min(sizes[name], most) for name, most in _LEAST_CELLS.items() if name in sizes}
    # If every row has a name, the id adds no information.
    has_names = "NAME" in header and all(row[header.index("NAME")] != "-" for row in table[1:])
    for name in _LEAST_WORTH:
        if sum(sizes.values()) + _GAP_CELLS * (len(sizes) - 1) <= width:
            break
        if name != "SANDBOX" or has_names:
            sizes.pop(name, None)
    kept = [number for number, name in enumerate(header) if name in sizes]
    return [tuple(row[number] for number in kept) for row in table]
