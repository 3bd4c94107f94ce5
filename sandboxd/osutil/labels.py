# SPDX-License-Identifier: Apache-2.0
"""Files of /proc with a label and a value on each line: status, meminfo, io, fdinfo."""

from __future__ import annotations


def read_labels(path: str) -> dict[str, str]:
    """Return the values by label. Raises OSError."""
    with open(path, encoding="utf-8", errors="replace") as file:
        pairs = (line.partition(":") for line in file)
        return {label: value.strip() for label, colon, value in pairs if colon}


def read_label(path: str, label: str) -> str | None:
    """Return the value of one label; None where the file lacks the label. Raises OSError."""
    begin = f"{label}:".encode()
    with open(path, "rb") as file:
        for line in file:
            if line.startswith(begin):
                return line[len(begin) :].decode(errors="replace").strip()
    return None


def parse_numbers(data: bytes) -> dict[bytes, int]:
    """Return the values that are numbers, with or without a unit, by label."""
    found = {}
    for line in data.splitlines():
        label, colon, value = line.partition(b":")
        words = value.split()
        if colon and words and words[0].isdigit():
            found[label] = int(words[0])
    return found
