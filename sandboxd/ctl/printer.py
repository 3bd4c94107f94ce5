# SPDX-License-Identifier: Apache-2.0
"""An execution's output on our own stdout and stderr, byte for byte."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import BinaryIO

from sandboxd.client.calls import Client, JsonObject, inline_output
from sandboxd.client.tail import STREAMS, follow
from sandboxd.ctl import streams


class Printer:
    """Knows how much of each stream is printed, so that whoever goes on does not repeat any.

    offsets: how much was printed elsewhere. files: those that a stream goes to instead of ours.
    files_alone: no other stream is printed.
    """

    def __init__(
        self, offsets: Mapping[str, int] | None = None, *, files: Mapping[str, str] | None = None,
        files_alone: bool = False,
    ) -> None:  # fmt: skip
        """Raises OSError for a file that cannot be written."""
        self._targets: dict[str, BinaryIO] = {
            "stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer,
        }  # fmt: skip
        self._files = tuple(files or ())
        for stream, path in (files or {}).items():
            self._targets[stream] = open(path, "wb")
        self.streams = self._files if files_alone else STREAMS
        self._printed = {**dict.fromkeys(STREAMS, 0), **(offsets or {})}
        self._lost: OSError | None = None

    def print(self, stream: str, data: bytes) -> None:
        """The next piece of a stream."""
        # Counted first: when a signal breaks a write off, the rest of it stays in our buffer.
        self._printed[stream] += len(data)
        target = self._targets[stream]
        try:
            target.write(data)
            target.flush()
        except OSError as exc:
            if stream in self._files:
                self._targets[stream] = open(os.devnull, "wb")
                self._lost = OSError(exc.errno, exc.strerror, target.name)
            else:
                self._cannot_print(exc)

    def _cannot_print(self, exc: OSError) -> None:
        streams.give_up_output()
        # Where its reader wants no more, the exit code is still the command's; what is lost
        # otherwise is no fault of the command's, which is not stopped for it.
        if not isinstance(exc, BrokenPipeError):
            self._lost = exc

    def check(self) -> None:
        """Raise the error, where some of the output could not be written."""
        if self._lost is not None:
            raise self._lost

    def follow(self, client: Client, execution: JsonObject) -> None:
        """All that it prints, as it comes, to its end."""
        place = (execution["sandbox_id"], execution["id"])
        for stream, data in follow(client, *place, self.streams, dict(self._printed)):
            self.print(stream, data)

    def finish(self, client: Client, execution: JsonObject) -> None:
        """Whatever of an ended execution's output is not printed yet."""
        for stream in self.streams:
            inline = inline_output(execution, stream)
            self.print(stream, inline[self._printed[stream] :])
            if self._printed[stream] < execution[f"{stream}_bytes"]:
                sandbox, identity = execution["sandbox_id"], execution["id"]
                offset = self._printed[stream]
                for data in client.read_output(sandbox, identity, stream, offset=offset):
                    self.print(stream, data)
