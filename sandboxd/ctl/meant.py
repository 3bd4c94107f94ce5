# SPDX-License-Identifier: Apache-2.0
"""Suggestions for unknown commands and options."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Names of commands and options in similar programs.
_COMMANDS = {
    "list": "ls", "images": "doctor", "info": "doctor", "start": "exec", "stop": "kill",
    "delete": "rm", "remove": "rm", "destroy": "rm", "pause": "suspend", "unpause": "resume",
    "freeze": "suspend", "thaw": "resume", "new": "create", "shell": "exec", "copy": "cp",
    "log": "logs", "status": "inspect", "show": "inspect", "units": "render-units",
}  # fmt: skip
_OPTIONS = {
    "-m": "--memory", "--mem": "--memory", "--cpu": "--cpus", "-c": "--cpus", "-n": "--name",
    "--time": "--timeout", "--pids-limit": "--pids", "--volume": "--bind", "--mount": "--bind",
    "--image": "--rootfs", "--label": "--metadata", "-l": "--metadata", "--workdir": "--cwd",
    "-w": "--cwd", "--net": "--network", "--format": "--output", "--json": "-o json",
    "--interactive": "--stdin", "--detached": "--detach", "--background": "--detach",
}  # fmt: skip


def command(wrong: str, commands: Iterable[str]) -> str:
    """Return the hint for an unknown command; "" = no suggestion."""
    return _hint(_COMMANDS.get(wrong) or _near(wrong, commands))


def argument(wrong: str, name: str, options: Iterable[str]) -> str:
    """Return the hint for an unknown argument of the command `name`; "" = no suggestion."""
    known = list(options)
    word = wrong.partition("=")[0]
    if word == "--rm" and name in {"run", "exec"}:
        return ": leave it out, run takes its sandbox away by itself"
    if not word.startswith("-"):
        return f": a name is given by --name {wrong}" if name == "create" else ""
    other = _OPTIONS.get(word)
    if other is not None and other.partition(" ")[0] in known:
        return _hint(other)
    return _hint(_near(word, [option for option in known if option.startswith("--")]))


def _near(wrong: str, known: Iterable[str]) -> str | None:
    return next(iter(difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.6)), None)


def _hint(found: str | None) -> str:
    return f": did you mean {found}?" if found else ""
