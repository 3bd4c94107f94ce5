# SPDX-License-Identifier: Apache-2.0
"""Man pages (man(7)) of sandboxctl and of each command."""

from __future__ import annotations

from reference.describe import Command, Option
from reference.roff import page, terms, text
from sandboxd.ctl import exits

_EXITS = (
    ("0 and others", "the exit code of the program, where it ran to an end"),
    (str(exits.REFUSED), "sandboxd refused, or cannot be reached; the reason is on stderr"),
    (str(exits.NO_CAPACITY), "refused for lack of capacity: the same may work later"),
    (str(exits.NOT_EXECUTABLE), "the program cannot be executed"),
    (str(exits.NOT_FOUND), "the program was not found"),
    ("128+N", "signal N ended the program"),
    (str(exits.KILLED), "the program was killed by a limit or on request; see stderr for which"),
)
_ENVIRONMENT = (("SANDBOXD_SOCKET", "the daemon's socket, unless --socket names one"),)


def pages(commands: list[Command]) -> dict[str, str]:
    """Return each page, by file name."""
    found = {"sandboxctl.1": _main_page(commands)}
    for command in commands:
        found[f"sandboxctl-{command.name}.1"] = _command_page(command)
    return found


def _main_page(commands: list[Command]) -> str:
    listed = [(f"sandboxctl-{command.name}(1)", command.summary) for command in commands]
    return page(
        "sandboxctl", 1, "run commands under kernel-held limits by sandboxd",
        [r"\fBsandboxctl\fR \fICOMMAND\fR [\fIOPTIONS\fR]"],
        [("COMMANDS", terms(listed)), ("EXIT STATUS", terms(_EXITS)),
         ("ENVIRONMENT", terms(_ENVIRONMENT))],
    )  # fmt: skip


def _command_page(command: Command) -> str:
    words = [argument.usage for argument in command.arguments]
    synopsis = rf"\fBsandboxctl {text(command.name)}\fR [\fIOPTIONS\fR]"
    synopsis = " ".join([synopsis, *(rf"\fI{text(word)}\fR" for word in words)])
    sections = []
    if command.arguments:
        arguments = [(argument.name, argument.help) for argument in command.arguments]
        sections.append(("ARGUMENTS", terms(arguments)))
    options = [(_flags(option), option.help) for option in command.options]
    sections.append(("OPTIONS", terms(options)))
    if command.takes_program:
        sections.append(("EXIT STATUS", terms(_EXITS)))
    sections.append(("SEE ALSO", ["sandboxctl(1)"]))
    return page(f"sandboxctl-{command.name}", 1, command.summary, [synopsis], sections)


def _flags(option: Option) -> str:
    flags = ", ".join(option.flags)
    return f"{flags} {option.metavar}".rstrip()
