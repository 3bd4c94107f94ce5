# SPDX-License-Identifier: Apache-2.0
"""sandboxctl logs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping

from sandboxd.client import timed
from sandboxd.client.blocking import iterate
from sandboxd.client.calls import Client
from sandboxd.client.tail import STREAMS, follow
from sandboxd.ctl.connect import connect
from sandboxd.ctl.limits import count, option
from sandboxd.ctl.lines import last_lines
from sandboxd.ctl.moment import FORMS as MOMENT_FORMS
from sandboxd.ctl.moment import moment
from sandboxd.ctl.stamped import Stamped
from sandboxd.errors import ExecutionNotFound


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--follow", "-f", action="store_true", help="go on to the end of the execution"
    )
    parser.add_argument(
        "--tail", "-n", type=option(count), metavar="N", help="only the last N lines of each stream"
    )
    parser.add_argument(
        "--since", type=option(moment), metavar="TIME",
        help=f"only what was printed from then on; {MOMENT_FORMS}",
    )  # fmt: skip
    parser.add_argument(
        "--timestamps", "-t", action="store_true",
        help="before each line, when its first character was printed",
    )  # fmt: skip
    parser.add_argument("--stream", choices=STREAMS, help="only this one (default: both)")
    parser.add_argument("sandbox", metavar="SANDBOX", help="id or name")
    parser.add_argument(
        "execution", nargs="?", metavar="EXECUTION", help="id; default: the sandbox's newest"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Print output byte for byte, stdout on stdout, stderr on stderr."""
    client = connect(arguments)
    execution = arguments.execution or _newest(client, arguments.sandbox)
    streams = (arguments.stream,) if arguments.stream else STREAMS
    offsets = {}
    if arguments.tail is not None:
        answer = client.get_execution(arguments.sandbox, execution)
        offsets = {name: last_lines(client, answer, name, arguments.tail) for name in streams}
    place = (client, arguments.sandbox, execution, streams, offsets)
    if arguments.since is not None or arguments.timestamps:
        pieces = _timed(*place, arguments)
    else:
        pieces = (follow if arguments.follow else _there)(*place)
    targets = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}
    for stream, data in pieces:
        targets[stream].write(data)
        targets[stream].flush()
    return 0


def _timed(
    client: Client, ref: str, execution: str, streams: tuple[str, ...],
    offsets: Mapping[str, int], arguments: argparse.Namespace,
) -> Iterator[tuple[str, bytes]]:  # fmt: skip
    flow = timed.flow(
        client.flow, ref, execution, since=arguments.since, offsets=offsets, follow=arguments.follow
    )
    stamped = {stream: Stamped() for stream in streams}
    for output in iterate(flow):
        if output.stream in streams:
            data = output.data
            if arguments.timestamps:
                data = stamped[output.stream].lines(data, output.at)
            yield output.stream, data


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
