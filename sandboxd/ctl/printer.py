# SPDX-License-Identifier: Apache-2.0
"""An execution's output on our own stdout and stderr, byte for byte."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from sandboxd.client.calls import Answer, Client, inline_output
from sandboxd.client.tail import STREAMS, follow
from sandboxd.ctl import streams


class Printer:
    """Knows how much of each stream is printed, so that whoever goes on does not repeat any.

    offsets: how much was printed elsewhere.
    """

    def __init__(self, offsets: Mapping[str, int] | None = None) -> None:
        self._printed = {**dict.fromkeys(STREAMS, 0), **(offsets or {})}
        self._targets = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}
        self._lost: streams.Unwritable | None = None

    def print(self, stream: str, data: bytes) -> None:
        """The next piece of a stream."""
        # Counted first: when a signal breaks a write off, the rest of it stays in our buffer.
        self._printed[stream] += len(data)
        target = self._targets[stream]
        try:
            target.write(data)
            target.flush()
        except BrokenPipeError:
            # Its reader wants no more; the exit code is still the command's.
            streams.give_up_output()
        except streams.Unwritable as exc:
            # No fault of the command's, which is not stopped for it.
            streams.give_up_output()
            self._lost = exc

    def check(self) -> None:
        """Raise Unwritable where some of the output could not be written."""
        if self._lost is not None:
            raise self._lost

    def follow(self, client: Client, execution: Answer) -> None:
        """All that it prints, as it comes, to its end."""
        place = (execution["sandbox_id"], execution["id"])
        for stream, data in follow(client, *place, offsets=dict(self._printed)):
            self.print(stream, data)

    def finish(self, client: Client, execution: Answer) -> None:
        """Whatever of an ended execution's output is not printed yet."""
        for stream in STREAMS:
            inline = inline_output(execution, stream)
            self.print(stream, inline[self._printed[stream] :])
            if self._printed[stream] < execution[f"{stream}_bytes"]:
                sandbox, identity = execution["sandbox_id"], execution["id"]
                offset = self._printed[stream]
                for data in client.read_output(sandbox, identity, stream, offset=offset):
                    self.print(stream, data)
