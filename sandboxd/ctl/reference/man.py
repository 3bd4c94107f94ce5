# SPDX-License-Identifier: Apache-2.0
"""Man pages (man(7)): one of sandboxctl, one of each command."""

from __future__ import annotations

from collections.abc import Iterable

from sandboxd import __version__
from sandboxd.ctl import exits
from sandboxd.ctl.reference.describe import Command, Option

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
    """File name -> page."""
    found = {"sandboxctl.1": _main_page(commands)}
    for command in commands:
        found[f"sandboxctl-{command.name}.1"] = _command_page(command)
    return found


def _main_page(commands: list[Command]) -> str:
    listed = [(f"sandboxctl-{command.name}(1)", command.summary) for command in commands]
    return _page(
        "sandboxctl", "run commands under kernel-held limits by sandboxd",
        [r"\fBsandboxctl\fR \fICOMMAND\fR [\fIOPTIONS\fR]"],
        [("COMMANDS", _terms(listed)), ("EXIT STATUS", _terms(_EXITS)),
         ("ENVIRONMENT", _terms(_ENVIRONMENT))],
    )  # fmt: skip


def _command_page(command: Command) -> str:
    words = [argument.usage for argument in command.arguments]
    synopsis = rf"\fBsandboxctl {_text(command.name)}\fR [\fIOPTIONS\fR]"
    synopsis = " ".join([synopsis, *(rf"\fI{_text(word)}\fR" for word in words)])
    sections = []
    if command.arguments:
        terms = [(argument.name, argument.help) for argument in command.arguments]
        sections.append(("ARGUMENTS", _terms(terms)))
    options = [(_flags(option), option.help) for option in command.options]
    sections.append(("OPTIONS", _terms(options)))
    if command.takes_program:
        sections.append(("EXIT STATUS", _terms(_EXITS)))
    sections.append(("SEE ALSO", ["sandboxctl(1)"]))
    return _page(f"sandboxctl-{command.name}", command.summary, [synopsis], sections)


def _page(
    name: str, summary: str, synopsis: list[str], sections: Iterable[tuple[str, list[str]]]
) -> str:
    lines = [
        f'.TH "{_text(name.upper())}" "1" "" "sandboxd {__version__}" "sandboxd"',
        ".SH NAME", rf"{_text(name)} \- {_text(summary)}",
        ".SH SYNOPSIS", *synopsis,
    ]  # fmt: skip
    for title, body in sections:
        lines += [f".SH {title}", *body]
    return "\n".join([*lines, ""])


def _terms(pairs: Iterable[tuple[str, str]]) -> list[str]:
    lines = []
    for term, text in pairs:
        lines += [".TP", rf"\fB{_text(term)}\fR", _text(text) or r"\&"]
    return lines


def _flags(option: Option) -> str:
    flags = ", ".join(option.flags)
    return f"{flags} {option.metavar}".rstrip()


def _text(text: str) -> str:
    """Plain text, with nothing that troff would obey."""
    text = text.replace("\\", r"\(rs").replace("-", r"\-").replace("\n", " ")
    return rf"\&{text}" if text.startswith((".", "'")) else text
