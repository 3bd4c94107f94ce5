# SPDX-License-Identifier: Apache-2.0
"""The output of an execution on stdout and stderr of sandboxctl, byte for byte."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import BinaryIO

from sandboxd.client.calls import Client, JsonObject, inline_output
from sandboxd.client.tail import STREAMS, follow
from sandboxd.ctl import streams


class Printer:
    """A printer that counts the bytes printed of each stream, so that no byte is printed twice.

    offsets: bytes already printed elsewhere. files: path of the file for a stream, in place of
    stdout or stderr. files_alone: print no other stream.
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
        """Print the next piece of a stream."""
        # Counted first: if a signal interrupts the write, the rest stays in Python's buffer.
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
        # If the reader has gone, the exit code is still the command's. A lost write is no fault of
        # the command, which is not stopped.
        if not isinstance(exc, BrokenPipeError):
            self._lost = exc

    def check(self) -> None:
        """Raise the error of a failed write, if any."""
        if self._lost is not None:
            raise self._lost

    def follow(self, client: Client, execution: JsonObject) -> None:
        """Print the output on arrival, to the execution's end."""
        place = (execution["sandbox_id"], execution["id"])
        for stream, data in follow(client, *place, self.streams, dict(self._printed)):
            self.print(stream, data)

    def finish(self, client: Client, execution: JsonObject) -> None:
        """Print the rest of an ended execution's output."""
        for stream in self.streams:
            inline = inline_output(execution, stream)
            self.print(stream, inline[self._printed[stream] :])
            if self._printed[stream] < execution[f"{stream}_bytes"]:
                sandbox, identity = execution["sandbox_id"], execution["id"]
                offset = self._printed[stream]
                for data in client.read_output(sandbox, identity, stream, offset=offset):
                    self.print(stream, data)
