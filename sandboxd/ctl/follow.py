# SPDX-License-Identifier: Apache-2.0
"""One execution from the start to the exit code, for `run` and `exec`."""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from sandboxd.client.calls import RUNNING, Client, JsonObject
from sandboxd.client.request import AWAY
from sandboxd.client.routes import SHORT_SECONDS
from sandboxd.core.quantity import parse_seconds
from sandboxd.ctl import exits, files, streams, verdict
from sandboxd.ctl.ending import GRACE_SECONDS, Ending
from sandboxd.ctl.exits import say
from sandboxd.ctl.interrupts import Interrupted, Interrupts
from sandboxd.ctl.limits import add_env, option
from sandboxd.ctl.printer import Printer
from sandboxd.ctl.show import print_json
from sandboxd.ctl.waiting import waiting
from sandboxd.errors import InvalidRequest, QuotaExceeded

# Ended by the kill after the grace, or not ended: the exit code tells the signal to sandboxctl.
_KILLED = ("KILLED", *RUNNING)
_PIECE_BYTES = 64 << 10
# Small enough for the request itself, which can then be repeated.
_MAX_INLINE_BYTES = 1 << 20


def add_execution(parser: argparse.ArgumentParser) -> None:
    """Add the arguments about the command."""
    add_env(parser)
    parser.add_argument("--cwd", metavar="DIR", help="working directory, from the home on")
    parser.add_argument(
        "--stdin", "-i", action="store_true", help="pass standard input on, as it comes"
    )
    parser.add_argument(
        "--tty", "-t", action="store_true",
        help="give the program this terminal; control-P control-Q leaves it running",
    )  # fmt: skip
    files.add_streams(parser)
    add_following(parser)


def add_following(parser: argparse.ArgumentParser) -> None:
    """Add the arguments about the wait for the execution."""
    parser.add_argument(
        "--grace", type=option(parse_seconds), default=GRACE_SECONDS, metavar="TIME",
        help="a signal to sandboxctl is passed on to the program, which is killed after TIME or at "
        f"a second one (default: {GRACE_SECONDS:g}s)",
    )  # fmt: skip
    words = parser.add_mutually_exclusive_group()
    words.add_argument("--quiet", "-q", action="store_true", help="nothing on stderr but errors")
    words.add_argument(
        "--verbose", "-v", action="store_true", help="say of each limit who held it, and how"
    )


def execution_body(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the body of an execution from the arguments. Raises InvalidRequest."""
    if not arguments.payload:
        raise InvalidRequest("cannot run nothing: name a program after --")
    for word in arguments.payload:
        if any("\udc80" <= char <= "\udcff" for char in word):
            raise InvalidRequest(f"cannot pass the argument {word!a}: it is not UTF-8")
    files.check_streams(arguments)
    body: dict[str, Any] = {"argv": arguments.payload}
    env = dict(arguments.env)
    if arguments.cwd is not None:
        body["cwd"] = arguments.cwd
    if arguments.tty:
        from sandboxd.ctl import terminal

        if arguments.output == "json":
            raise InvalidRequest("cannot print JSON to the program's terminal: leave -t or -o out")
        body["tty"] = terminal.size()
        env.setdefault("TERM", os.environ.get("TERM") or "xterm")
    elif arguments.stdin_file is not None:
        files.standard_input(arguments.stdin_file)
        body |= _passed_on()
    elif arguments.stdin:
        body |= _standard_input()
    arguments.is_fed = "stdin_open" in body
    return {**body, "env": env} if env else body


def _standard_input() -> dict[str, Any]:
    if streams.was_closed(0):
        raise InvalidRequest(
            "cannot pass standard input on: it is closed",
            hint="leave -i out, or give it </dev/null",
        )
    return _passed_on()


def _passed_on() -> dict[str, Any]:
    found = os.fstat(0)
    if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_INLINE_BYTES:
        return {"stdin_open": True}
    import base64

    with open(0, "rb", closefd=False) as file:
        data = file.read(_MAX_INLINE_BYTES + 1)
    return {"stdin_base64": base64.b64encode(data).decode("ascii")}


def starter(
    client: Client,
    arguments: argparse.Namespace,
    body: dict[str, Any],
    begin: Callable[[dict[str, Any], float], JsonObject],
) -> Callable[[float], JsonObject]:
    """Return the function that starts `body`, at a terminal without a default timeout."""
    if not arguments.tty:
        return lambda wait: begin(body, wait)
    from sandboxd.ctl import unhurried

    ref = getattr(arguments, "sandbox", None)
    return lambda wait: unhurried.start(client, ref, body, lambda asked: begin(asked, wait))


def follow(
    client: Client,
    start: Callable[[float], JsonObject],
    arguments: argparse.Namespace,
    interrupts: Interrupts,
    printer: Printer | None = None,
) -> int:
    """Start an execution, print its output, wait for the end and return the exit code.

    start: gets the seconds to wait for the end, before any output is printed. printer: a printer
    that has printed part of the output. Signals to sandboxctl: see ctl/ending.py.
    """
    # `attach` has no --meta.
    with files.telling(getattr(arguments, "meta", None)) as tell:
        return _follow(client, start, arguments, interrupts, printer, tell)


def _follow(
    client: Client,
    start: Callable[[float], JsonObject],
    arguments: argparse.Namespace,
    interrupts: Interrupts,
    printer: Printer | None,
    tell: Callable[[JsonObject, int], None],
) -> int:
    ending = Ending(client, arguments.grace)
    is_json = arguments.output == "json"
    printer = printer or Printer(files=files.targets(arguments), files_alone=is_json)
    try:
        with interrupts.passing(ending.pass_on):
            # An execution can be signalled only by its id.
            with interrupts.held(), waiting("starting the program"):
                seconds = 0.0 if arguments.is_fed or arguments.tty else SHORT_SECONDS
                execution = ending.execution = start(seconds)
            if arguments.tty:
                from sandboxd.ctl.terminal import in_terminal

                if in_terminal(client, execution, printer):
                    say(_left_running(execution))
                    return 0
            elif execution["status"] in RUNNING:
                execution = _watch(client, execution, arguments, printer)
            if execution["status"] in RUNNING:
                execution = client.finish_execution(execution["sandbox_id"], execution["id"])
            ending.is_over = True
    except Interrupted as exc:
        if ending.execution is None:
            raise
        ending.number = exc.number
        execution = ending.kill()
    printer.finish(client, execution)
    if is_json:
        print_json(execution)
    else:
        _tell(execution, arguments)
    code = exits.of_execution(execution)
    if ending.number is not None and execution["status"] in _KILLED:
        code = exits.SIGNALLED + ending.number
    tell(execution, code)
    printer.check()
    return code


def _watch(
    client: Client, execution: JsonObject, arguments: argparse.Namespace, printer: Printer
) -> JsonObject:
    """Feed the execution and print its output; return the last state seen."""
    if arguments.is_fed:
        from sandboxd.ctl.feed import Feed

        Feed(client, execution, lambda: os.read(0, _PIECE_BYTES), is_lossy=False).start()
        execution = _a_little_later(client, execution)
    if printer.streams and execution["status"] in RUNNING:
        # With too many streams open, the output is printed at the end.
        with suppress(QuotaExceeded):
            printer.follow(client, execution)
    return execution


def _a_little_later(client: Client, execution: JsonObject) -> JsonObject:
    try:
        return client.wait_execution(
            execution["sandbox_id"], execution["id"], timeout_seconds=SHORT_SECONDS
        )
    except AWAY:
        return execution


def _left_running(execution: JsonObject) -> str:
    place = f"{execution['sandbox_id']} {execution['id']}"
    return f"it goes on without you; to come back: sandboxctl attach {place}"


def _tell(execution: JsonObject, arguments: argparse.Namespace) -> None:
    if not (arguments.quiet or arguments.tty):
        say("\n  ".join(verdict.block(execution, is_long=arguments.verbose)))
    elif execution["status"] != "EXITED":
        say(verdict.verdict(execution))
