# SPDX-License-Identifier: Apache-2.0
"""The command line as data, read from the parsers."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from sandboxd.ctl.main import COMMANDS, argument_usage, command_parser


@dataclass(frozen=True, slots=True)
class Option:
    """An option; `metavar` is "" for an option without a value."""

    flags: tuple[str, ...]
    metavar: str
    choices: tuple[str, ...]
    help: str


@dataclass(frozen=True, slots=True)
class Argument:
    """A positional argument, as the usage line shows it."""

    name: str
    usage: str
    help: str


@dataclass(frozen=True, slots=True)
class Command:
    """A command of sandboxctl, or a further program."""

    name: str
    summary: str
    options: tuple[Option, ...]
    arguments: tuple[Argument, ...]

    @property
    def takes_sandbox(self) -> bool:
        """Whether the first argument is a sandbox."""
        return bool(self.arguments) and self.arguments[0].name == "SANDBOX"

    @property
    def takes_program(self) -> bool:
        """Whether the command ends with a program's command line."""
        return any(argument.name == "PROGRAM" for argument in self.arguments)


def describe() -> list[Command]:
    """Return all commands, in the order of --help."""
    return [of_parser(name, COMMANDS[name], command_parser(name)) for name in COMMANDS]


def of_parser(name: str, summary: str, parser: argparse.ArgumentParser) -> Command:
    """Return the options and arguments of a parser."""
    options, arguments = [], []
    for action in parser._actions:
        if action.help == argparse.SUPPRESS:
            continue
        # argparse expands %-formats of help texts only on output.
        text = (action.help or "") % {"prog": parser.prog, "default": action.default}
        if action.option_strings:
            options.append(_option(action, text))
        else:
            shown = str(action.metavar or action.dest)
            arguments.append(Argument(shown, argument_usage(shown, action.nargs), text))
    return Command(name, summary, tuple(options), tuple(arguments))


def _option(action: argparse.Action, text: str) -> Option:
    choices = tuple(map(str, action.choices or ()))
    metavar = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    if choices:
        metavar = "|".join(choices)
    return Option(tuple(action.option_strings), metavar, choices, text)
