# SPDX-License-Identifier: Apache-2.0
"""Completion for bash, zsh and fish: commands, options, choices, and the caller's sandboxes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from reference.describe import Command

_SANDBOXES = "sandboxctl ls --ids 2>/dev/null"

_BASH = r"""# bash completion of sandboxctl
_sandboxctl() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    local command=${COMP_WORDS[1]} options="" word
    COMPREPLY=()
    if [[ $COMP_CWORD -eq 1 ]]; then
        COMPREPLY=($(compgen -W "@COMMANDS@ --help --version" -- "$current"))
        return
    fi
    for word in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do
        if [[ $word == -- ]]; then
            # What comes now is the program's own command line.
            COMPREPLY=($(compgen -f -- "$current"))
            return
        fi
    done
    case "$command $previous" in
@CHOICES@
    esac
    case "$command" in
@OPTIONS@
    esac
    if [[ $current == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$current"))
        return
    fi
    case "$command" in
        @SANDBOX@) COMPREPLY=($(compgen -W "$(@LIST@)" -- "$current")) ;;
    esac
}
complete -o default -F _sandboxctl sandboxctl
"""

_ZSH = r"""#compdef sandboxctl
# zsh completion of sandboxctl
_sandboxctl_sandboxes() {
    local -a sandboxes
    sandboxes=(${(f)"$(@LIST@)"})
    compadd -a sandboxes
}
_sandboxctl() {
    local -a commands
    commands=(
@COMMANDS@
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
@CASES@
    esac
}
_sandboxctl "$@"
"""


def bash(commands: list[Command]) -> str:
    """Return the completion script for bash."""
    choices = [
        f"        {_either(f'{command.name} {flag}' for flag in option.flags)})\n"
        f'            COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$current"))\n'
        f"            return ;;"
        for command in commands
        for option in command.options
        if option.choices
    ]
    options = [
        f'        {command.name}) options="{" ".join(_flags(command))}" ;;' for command in commands
    ]
    text = _BASH.replace("@COMMANDS@", " ".join(command.name for command in commands))
    text = text.replace("@CHOICES@", "\n".join(choices)).replace("@OPTIONS@", "\n".join(options))
    takers = "|".join(command.name for command in commands if command.takes_sandbox)
    return text.replace("@SANDBOX@", takers).replace("@LIST@", _SANDBOXES)


def zsh(commands: list[Command]) -> str:
    """Return the completion script for zsh."""
    listed = [f"        {shlex.quote(f'{command.name}:{command.summary}')}" for command in commands]
    text = _ZSH.replace("@COMMANDS@", "\n".join(listed))
    text = text.replace("@CASES@", "\n".join(map(_zsh_case, commands)))
    return text.replace("@LIST@", _SANDBOXES)


def fish(commands: list[Command]) -> str:
    """Return the completion script for fish."""
    lines = ["# fish completion of sandboxctl", "complete -c sandboxctl -f"]
    for command in commands:
        summary = shlex.quote(command.summary)
        lines.append(
            f"complete -c sandboxctl -n __fish_use_subcommand -a {command.name} -d {summary}"
        )
        here = f"-n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            flags = [
                f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                for flag in option.flags
            ]
            value = " -r" if option.metavar else ""
            if option.choices:
                value = f" -x -a '{' '.join(option.choices)}'"
            words = f"{' '.join(flags)}{value} -d {shlex.quote(option.help)}"
            lines.append(f"complete -c sandboxctl {here} {words}")
        if command.takes_sandbox:
            lines.append(f"complete -c sandboxctl {here} -a '({_SANDBOXES})'")
    return "\n".join([*lines, ""])


def _zsh_case(command: Command) -> str:
    specs = []
    for option in command.options:
        text = option.help.translate({ord("["): "(", ord("]"): ")", ord(":"): ";"})
        value = f":{option.metavar.replace(':', ' ')}:" if option.metavar else ""
        if option.choices:
            value = f":value:({' '.join(option.choices)})"
        specs += [shlex.quote(f"*{flag}[{text}]{value}") for flag in option.flags]
    if command.takes_sandbox:
        specs.append(shlex.quote("1:sandbox:_sandboxctl_sandboxes"))
    if command.takes_program:
        specs.append(shlex.quote("*::program:_normal"))
    else:
        specs.append(shlex.quote("*:file:_files"))
    lines = " \\\n            ".join(["_arguments", *specs])
    return f"        {command.name})\n            {lines}\n            ;;"


def _flags(command: Command) -> list[str]:
    return [flag for option in command.options for flag in option.flags]


def _either(words: Iterable[str]) -> str:
    return "|".join(f'"{word}"' for word in words)
