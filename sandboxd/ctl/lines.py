# SPDX-License-Identifier: Apache-2.0
"""Where the last lines of an execution's output begin, without reading what is before them."""

from __future__ import annotations

from sandboxd.client.calls import Client, JsonObject

_FIRST_BYTES = 16 << 10


def last_lines(client: Client, execution: JsonObject, stream: str, count: int) -> int:
    """The offset of the first byte of the last `count` lines; 0 where there are fewer."""
    size: int = execution[f"{stream}_bytes"]
    if count == 0:
        return size
    length = _FIRST_BYTES
    while True:
        begin = max(0, size - length)
        pieces = client.read_output(execution["sandbox_id"], execution["id"], stream, offset=begin)
        # What has come since is no part of them.
        data = b"".join(pieces)[: size - begin]
        # The end of the last line begins no other one.
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
