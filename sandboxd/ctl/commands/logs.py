# SPDX-License-Identifier: Apache-2.0
"""sandboxctl logs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping

from sandboxd.client.calls import Client
from sandboxd.client.tail import STREAMS, follow
from sandboxd.ctl.connect import connect
from sandboxd.ctl.limits import count, option
from sandboxd.ctl.lines import last_lines
from sandboxd.errors import ExecutionNotFound


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument(
        "--follow", "-f", action="store_true", help="go on to the end of the execution"
    )
    parser.add_argument(
        "--tail", "-n", type=option(count), metavar="N", help="only the last N lines of each stream"
    )
    parser.add_argument("--stream", choices=STREAMS, help="only this one (default: both)")
    parser.add_argument("sandbox", metavar="SANDBOX", help="id or name")
    parser.add_argument(
        "execution", nargs="?", metavar="EXECUTION", help="id; default: the sandbox's newest"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Print the bytes, each stream to its own."""
    client = connect(arguments)
    execution = arguments.execution or _newest(client, arguments.sandbox)
    streams = (arguments.stream,) if arguments.stream else STREAMS
    pieces = follow if arguments.follow else _there
    offsets = {}
    if arguments.tail is not None:
        answer = client.get_execution(arguments.sandbox, execution)
        offsets = {name: last_lines(client, answer, name, arguments.tail) for name in streams}
    targets = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}
    for stream, data in pieces(client, arguments.sandbox, execution, streams, offsets):
        targets[stream].write(data)
        targets[stream].flush()
    return 0


def _there(
    client: Client, ref: str, execution: str, streams: tuple[str, ...], offsets: Mapping[str, int]
) -> Iterator[tuple[str, bytes]]:
    for stream in streams:
        for data in client.read_output(ref, execution, stream, offset=offsets.get(stream, 0)):
            yield stream, data


def _newest(client: Client, ref: str) -> str:
    newest: str | None = None
    for execution in client.list_executions(ref):
        newest = execution["id"]
    if newest is None:
        raise ExecutionNotFound(f"cannot show output: nothing has run in sandbox {ref!r}")
    return newest
