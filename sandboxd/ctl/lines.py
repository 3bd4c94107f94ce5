# SPDX-License-Identifier: Apache-2.0
"""The start of the last lines of an execution's output, found by reading from the end."""

from __future__ import annotations

from sandboxd.client.calls import Client, JsonObject

_FIRST_BYTES = 16 << 10


def last_lines(client: Client, execution: JsonObject, stream: str, count: int) -> int:
    """Return the offset of the first byte of the last `count` lines; 0 if there are fewer."""
    size: int = execution[f"{stream}_bytes"]
    if count == 0:
        return size
    length = _FIRST_BYTES
    while True:
        begin = max(0, size - length)
        pieces = client.read_output(execution["sandbox_id"], execution["id"], stream, offset=begin)
        # Without the output after `size` was read.
        data = b"".join(pieces)[: size - begin]
        # The newline of the last line starts no further line.
        place = len(data) - data.endswith(b"\n")
        for _ in range(count):
            place = data.rfind(b"\n", 0, max(place, 0))
            if place < 0:
                break
        if place >= 0:
            return begin + place + 1
        if begin == 0:
            return 0
        length *= 4
