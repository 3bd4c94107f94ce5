# SPDX-License-Identifier: Apache-2.0
"""Entry point of sandboxctl.

Only the named command's module is loaded, to keep a request near the cost of starting Python.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol, cast

from sandboxd import __version__
from sandboxd.client.calls import DEFAULT_SOCKET, SOCKET_VARIABLE, socket_path
from sandboxd.ctl import exits, streams
from sandboxd.errors import SandboxdError, SandboxNotFound

# Command to help text; each command is a module of ctl/commands, with _ for -.
COMMANDS = {
    "run": "run one command in a sandbox of its own",
    "create": "create a sandbox",
    "ls": "list sandboxes",
    "exec": "run a command in a sandbox",
    "ps": "list executions",
    "logs": "show what an execution printed, or prints",
    "attach": "go on with an execution that was left running",
    "wait": "wait for executions to end",
    "kill": "end an execution or all in a sandbox, or send a signal",
    "top": "show what sandboxes use, live",
    "stats": "print what sandboxes use",
    "inspect": "show all about a sandbox or an execution",
    "cp": "copy files and directories into a sandbox or out of it",
    "suspend": "freeze every process in sandboxes",
    "resume": "let suspended sandboxes go on",
    "update": "change a sandbox's limits, live",
    "rm": "release sandboxes, with all that runs in them",
    "events": "show what happens, as it happens",
    "report": "say what ran in a period, as text or as a page with plots",
    "drain": "have the host take no new work; what runs goes on",
    "undrain": "have the host take work again",
    "doctor": "say what this host can enforce, by whom, and what is missing",
    "render-units": "write the systemd units of the service, for a host without the package",
}
# Commands that end with a program's command line.
WITH_PAYLOAD = frozenset({"run", "exec"})
# Commands that need no daemon, and thus no socket.
WITHOUT_DAEMON = frozenset({"render-units"})


# Options accepted in place of a command.
_OWN_OPTIONS = frozenset({"-h", "--help", "--version"})


class CommandModule(Protocol):
    """The interface of a module in ctl/commands."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""

    def execute(self, arguments: argparse.Namespace) -> int:
        """Run the command; return the exit code."""


class _Parser(argparse.ArgumentParser):
    """argparse with sandboxd's exit code for errors, and no abbreviated options in scripts."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more, allow_abbrev=False)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments, or exit with the error and a suggestion."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            from sandboxd.ctl import meant

            name, known = self.prog.rpartition(" ")[2], self._option_string_actions
            hint = meant.argument(unknown[0], name, known)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found

    def error(self, message: str) -> NoReturn:
        """Print the error of the command line and exit."""
        self.print_usage(sys.stderr)
        self.exit(exits.REFUSED, f"{self.prog}: {message}\n{self.prog} --help says more\n")


def command_module(name: str) -> CommandModule:
    """Load the module of a command."""
    module = importlib.import_module(f"sandboxd.ctl.commands.{name.replace('-', '_')}")
    return cast(CommandModule, module)


def argument_usage(name: str, nargs: int | str | None) -> str:
    """Return a positional argument in the form of a usage line."""
    if nargs == argparse.REMAINDER:
        return f"-- {name} [ARGUMENT...]"
    return {"?": f"[{name}]", "*": f"[{name}...]", "+": f"{name}..."}.get(str(nargs), name)


def command_parser(name: str, *, with_payload: bool = True) -> argparse.ArgumentParser:
    """Return a command's parser. with_payload: parse the payload too, without a `--` before."""
    text = COMMANDS[name]
    parser = _Parser(prog=f"sandboxctl {name}", description=f"{text[0].upper()}{text[1:]}.")
    parser.set_defaults(command=name)
    if name not in WITHOUT_DAEMON:
        parser.add_argument(
            "--socket", metavar="PATH",
            help=f"the daemon's socket (default: ${SOCKET_VARIABLE}, or {DEFAULT_SOCKET})",
        )  # fmt: skip
    command_module(name).configure(parser)
    # One line: a screen of options would bury the error message.
    usage = [f"{parser.prog} [OPTIONS]"]
    usage += [
        argument_usage(str(action.metavar), action.nargs)
        for action in parser._get_positional_actions()
    ]
    if name in WITH_PAYLOAD:
        usage.append(argument_usage("PROGRAM", argparse.REMAINDER))
        if with_payload:
            text = "the program to run; put -- before it"
            parser.add_argument("payload", nargs=argparse.REMAINDER, metavar="PROGRAM", help=text)
    parser.usage = " ".join(usage)
    return parser


def main_parser() -> argparse.ArgumentParser:
    """Return the parser without subparsers, which take longer to make than a request takes."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name.ljust(width)}  {text}" for name, text in COMMANDS.items()]
    parser = _Parser(
        prog="sandboxctl",
        usage="sandboxctl COMMAND [OPTIONS]",
        description="Run commands under kernel-held limits by sandboxd.",
        epilog="\n".join(["commands:", *lines, "", "sandboxctl help COMMAND says more."]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sandboxctl {__version__}")
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; the words after the first `--` are the payload, unparsed."""
    if not argv or argv[0] not in COMMANDS:
        parser = main_parser()
        if argv and argv[0] == "help":
            # `help COMMAND` as in most programs.
            return parse([*argv[1:2], "--help"])
        if argv and argv[0] == "version":
            return parser.parse_args(["--version"])
        if argv and argv[0].startswith("-") and argv[0] not in _OWN_OPTIONS:
            parser.error(f"options such as {argv[0]} come after the command")
        if argv and argv[0] not in _OWN_OPTIONS:
            from sandboxd.ctl import meant

            hint = meant.command(argv[0], [*COMMANDS, "help"])
            parser.error(f"unknown command {argv[0]!r}{hint}")
        return parser.parse_args(argv)
    name, *rest = argv
    if not (name in WITH_PAYLOAD and "--" in rest):
        return command_parser(name).parse_args(rest)
    split = rest.index("--")
    arguments = command_parser(name, with_payload=False).parse_args(rest[:split])
    arguments.payload = rest[split + 1 :]
    return arguments


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    streams.prepare()
    try:
        code = _run(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of stdout has gone.
        streams.give_up_output()
        return exits.SIGNALLED + 13
    except streams.Unwritable as exc:
        streams.give_up_output()
        exits.say(f"cannot write to standard output: {exc.strerror}")
        return exits.REFUSED
    return code


def _run(argv: Sequence[str]) -> int:
    """Run one command. Raises BrokenPipeError or Unwritable if writing to stdout fails."""
    try:
        arguments = parse(argv)
        try:
            return command_module(arguments.command).execute(arguments)
        except SandboxNotFound as exc:
            if ref := getattr(arguments, "sandbox", None):
                from sandboxd.ctl.owners import explain

                explain(exc, socket_path(arguments.socket), ref)
            raise
    except SystemExit as exc:
        # argparse exits after --help or an error; stdout is flushed by the caller.
        return int(exc.code or 0)
    except SandboxdError as exc:
        return exits.report(exc)
    except (exits.Interrupted, KeyboardInterrupt) as exc:
        return exits.SIGNALLED + getattr(exc, "number", 2)
    except (BrokenPipeError, streams.Unwritable):
        raise
    except OSError as exc:
        what = f"use {exc.filename!r}" if exc.filename else "go on"
        exits.say(f"cannot {what}: {exc.strerror or exc}")
        return exits.REFUSED


if __name__ == "__main__":
    sys.exit(main())
