# SPDX-License-Identifier: Apache-2.0
"""One execution from its start to its exit code, as `run` and `exec` share it."""

from __future__ import annotations

import argparse
import base64
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from sandboxd.client.calls import Answer, Client
from sandboxd.ctl import exits, verdict
from sandboxd.ctl.exits import say
from sandboxd.ctl.interrupts import Interrupted, Interrupts
from sandboxd.ctl.limits import add_env
from sandboxd.ctl.show import print_json
from sandboxd.errors import ExecutionFinished, InvalidRequest

_KILL_WAIT_SECONDS = 10.0
# What a request may measure, less the rest of it.
_MAX_INPUT_BYTES = 6 << 20


def add_execution(parser: argparse.ArgumentParser) -> None:
    """Arguments about the command."""
    add_env(parser)
    parser.add_argument("--cwd", metavar="DIR", help="working directory, from the home on")
    parser.add_argument(
        "--stdin", "-i", action="store_true", help="pass standard input on, read to its end first"
    )
    parser.add_argument("--quiet", "-q", action="store_true", help="nothing on stderr but errors")


def execution_body(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields of an execution that were given. Raises InvalidRequest."""
    if not arguments.payload:
        raise InvalidRequest("cannot run nothing: name a program after --")
    for word in arguments.payload:
        if any("\udc80" <= char <= "\udcff" for char in word):
            raise InvalidRequest(f"cannot pass the argument {word!a}: it is not UTF-8")
    body: dict[str, Any] = {"argv": arguments.payload}
    if arguments.env:
        body["env"] = dict(arguments.env)
    if arguments.cwd is not None:
        body["cwd"] = arguments.cwd
    if arguments.stdin:
        body |= _read_input()
    return body


def _read_input() -> dict[str, str]:
    if sys.stdin.isatty():
        raise InvalidRequest(
            "cannot pass a terminal as standard input", hint="redirect a file or a pipe into it"
        )
    data = sys.stdin.buffer.read(_MAX_INPUT_BYTES + 1)
    if len(data) > _MAX_INPUT_BYTES:
        raise InvalidRequest(
            f"cannot pass more than {_MAX_INPUT_BYTES} bytes of standard input",
            hint="give large input in a file",
        )
    encoded = base64.b64encode(data).decode("ascii")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"stdin_base64": encoded}
    # JSON's escapes may take six bytes for one.
    return {"stdin": text} if len(json.dumps(text)) <= len(encoded) else {"stdin_base64": encoded}


def follow(
    client: Client,
    start: Callable[[], Answer],
    arguments: argparse.Namespace,
    interrupts: Interrupts,
) -> int:
    """Start, wait, print; returns the exit code. A signal to us kills the execution."""
    execution: Answer | None = None
    interrupted: Interrupted | None = None
    try:
        # Until its id is known, nobody could kill it.
        with interrupts.held():
            execution = start()
        execution = client.finish_execution(execution["sandbox_id"], execution["id"])
    except Interrupted as exc:
        if execution is None:
            raise
        interrupted = exc
        execution = _kill(client, execution)
    _print_execution(client, execution, arguments)
    if interrupted is not None:
        return exits.SIGNALLED + interrupted.number
    return exits.of_execution(execution)


def _kill(client: Client, execution: Answer) -> Answer:
    sandbox, identity = execution["sandbox_id"], execution["id"]
    try:
        client.kill_execution(sandbox, identity, {})
    except ExecutionFinished:
        return client.get_execution(sandbox, identity)
    return client.wait_execution(sandbox, identity, timeout_seconds=_KILL_WAIT_SECONDS)


def _print_execution(client: Client, execution: Answer, arguments: argparse.Namespace) -> None:
    if arguments.output == "json":
        print_json(execution)
        return
    for stream, target in (("stdout", sys.stdout.buffer), ("stderr", sys.stderr.buffer)):
        try:
            for chunk in client.all_output(execution, stream):
                target.write(chunk)
            target.flush()
        except BrokenPipeError:
            # Its reader wants no more; the exit code is still the command's.
            os.dup2(os.open(os.devnull, os.O_WRONLY), target.fileno())
    if not arguments.quiet:
        say("\n  ".join(verdict.block(execution)))
    elif execution["status"] != "EXITED":
        say(verdict.verdict(execution))
