# SPDX-License-Identifier: Apache-2.0
"""Entry point of sandboxctl. Only the named command's module is loaded, since one request has to
cost about an interpreter's start."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

from sandboxd import __version__
from sandboxd.client.calls import DEFAULT_SOCKET, SOCKET_VARIABLE
from sandboxd.ctl import exits
from sandboxd.ctl.interrupts import Interrupted
from sandboxd.errors import SandboxdError

# Command, and what it does; each is a module of its name in ctl/commands.
COMMANDS = {
    "run": "run one command in a sandbox of its own",
    "create": "create a sandbox",
    "ls": "list sandboxes",
    "exec": "run a command in a sandbox",
    "ps": "list executions",
    "kill": "end an execution, or send it a signal",
    "inspect": "show all about a sandbox or an execution",
    "suspend": "freeze every process in sandboxes",
    "resume": "let suspended sandboxes go on",
    "update": "change a sandbox's limits, live",
    "rm": "release sandboxes, with all that runs in them",
    "doctor": "say what this host can enforce, by whom, and what is missing",
}
# Commands that end with another one's command line.
WITH_PAYLOAD = frozenset({"run", "exec"})


class CommandModule(Protocol):
    """What a module in ctl/commands offers."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add its arguments."""

    def execute(self, arguments: argparse.Namespace) -> int:
        """Do it; returns the exit code."""


class _Parser(argparse.ArgumentParser):
    """argparse, with the exit code for what is refused."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line."""
        self.print_usage(sys.stderr)
        self.exit(exits.REFUSED, f"{self.prog}: {message}\n")


def command_module(name: str) -> CommandModule:
    """The module of a command."""
    return cast(CommandModule, importlib.import_module(f"sandboxd.ctl.commands.{name}"))


def make_parser(named: Sequence[str], *, with_payload: bool = True) -> argparse.ArgumentParser:
    """A parser that knows every command's name, and the arguments of the `named` ones.

    with_payload: a payload is among what will be parsed, without a `--` before it.
    """
    parser = _Parser(
        prog="sandboxctl", description="Run commands under kernel-held limits by sandboxd."
    )
    parser.add_argument("--version", action="version", version=f"sandboxctl {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        if name not in named:
            continue
        sub.add_argument(
            "--socket", metavar="PATH",
            help=f"the daemon's socket (default: ${SOCKET_VARIABLE}, or {DEFAULT_SOCKET})",
        )  # fmt: skip
        command_module(name).configure(sub)
        if name in WITH_PAYLOAD and with_payload:
            text = "the program to run; put -- before it"
            sub.add_argument("payload", nargs=argparse.REMAINDER, metavar="PROGRAM", help=text)
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command line; what follows the first `--` is the payload, whatever it looks like."""
    named = [argument for argument in argv if argument in COMMANDS][:1]
    if not (named and named[0] in WITH_PAYLOAD and "--" in argv):
        return make_parser(named).parse_args(argv)
    split = argv.index("--")
    arguments = make_parser(named, with_payload=False).parse_args(argv[:split])
    arguments.payload = list(argv[split + 1 :])
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    arguments = parse(sys.argv[1:] if argv is None else argv)
    try:
        code = command_module(arguments.command).execute(arguments)
        sys.stdout.flush()
    except SandboxdError as exc:
        return exits.report(exc)
    except (Interrupted, KeyboardInterrupt) as exc:
        return exits.SIGNALLED + getattr(exc, "number", 2)
    except BrokenPipeError:
        # Whoever read stdout has gone away; the interpreter's last flush must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.SIGNALLED + 13
    except OSError as exc:
        exits.say(f"cannot go on: {exc}")
        return exits.REFUSED
    return code


if __name__ == "__main__":
    sys.exit(main())
