# SPDX-License-Identifier: Apache-2.0
"""The man pages of the daemon: sandboxd(8), sandboxd.toml(5), sandboxd-api(7).

Options come from the daemon's parser, routes from the API's table, and settings from the installed
commented file (packaging/sandboxd.toml), which tests compare with config.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reference.describe import of_parser
from reference.roff import literal, page, paragraphs, terms, text
from sandboxd import errors
from sandboxd.api.responses import status_of
from sandboxd.api.routes import Access, AnyRoute
from sandboxd.api.table import ROUTES
from sandboxd.daemon import config

SETTINGS = Path(__file__).parents[1] / "sandboxd.toml"
_HEADING = "## "


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings of the file that share a text: `name = value`, with the default or an example."""

    lines: tuple[str, ...]
    text: str


def settings(content: str) -> tuple[list[str], list[tuple[str, list[Setting]]]]:
    """Return the file's introduction in paragraphs, and the sections by heading."""
    introduction: list[str] = []
    sections: list[tuple[str, list[Setting]]] = []
    for block in content.split("\n\n"):
        lines = block.strip().splitlines()
        prose = "\n".join(line[1:].strip() for line in lines if line == "#" or line[1:2] == " ")
        values = tuple(line[1:] for line in lines if line[:1] == "#" and line[1:2].isalpha())
        if lines and lines[0].startswith(_HEADING):
            sections.append((lines[0].removeprefix(_HEADING), []))
        elif values:
            sections[-1][1].append(Setting(values, prose))
        elif not prose.startswith("SPDX-"):
            introduction += prose.split("\n\n")
    return introduction, sections


def pages() -> dict[str, str]:
    """Return each page, by the path below /usr/share."""
    return {
        "man/man8/sandboxd.8": _daemon(),
        "man/man5/sandboxd.toml.5": _settings(),
        "man/man7/sandboxd-api.7": _api(),
    }


def _daemon() -> str:
    command = of_parser("sandboxd", "", config.argument_parser())
    options = [
        (f"{', '.join(option.flags)} {option.metavar}".rstrip(), option.help)
        for option in command.options
    ]
    files = [
        (config.DEFAULT_FILE, "settings: sandboxd.toml(5)"),
        (config.DEFAULT_SOCKET, "the API's socket: sandboxd-api(7)"),
        (config.DEFAULT_STATE_DIRECTORY, "sandboxes and records of executions"),
    ]
    units = [
        ("sandboxd.socket", "the API's socket, of group sandboxd: its members may use the service"),
        ("sandboxd.service", "the daemon; it may be restarted at any time, what runs goes on"),
        ("sandboxd-spawner.service", "forks the processes that watch over executions"),
        ("sandboxd-supervisor.service", "holds the limits where systemd cannot"),
        ("sandboxd.slice", "all sandboxes; to stop it ends everything in them"),
    ]
    return page(
        "sandboxd", 8, "run untrusted commands under kernel-held limits",
        [r"\fBsandboxd\fR [\fIOPTIONS\fR]"],
        [
            ("DESCRIPTION", paragraphs(
                "sandboxd runs commands for many callers on one host. A sandbox is a slice of "
                "systemd's and an execution in it a scope; memory, processors, processes and disk "
                "bandwidth are limited for the sum of all that a command starts. Where systemd or "
                "the unified cgroup hierarchy is missing, a supervisor holds the limits, and every "
                "answer says who holds which.",
                "SIGTERM ends the daemon and nothing else: executions go on, and the next daemon "
                "on the same state directory takes them over.",
            )),
            ("OPTIONS", terms(options)),
            ("UNITS", terms(units)),
            ("FILES", terms(files)),
            ("SEE ALSO", paragraphs("sandboxctl(1), sandboxd.toml(5), sandboxd-api(7)")),
        ],
    )  # fmt: skip


def _settings() -> str:
    introduction, sections = settings(SETTINGS.read_text())
    body: list[tuple[str, list[str]]] = [("DESCRIPTION", paragraphs(*introduction))]
    for heading, entries in sections:
        lines: list[str] = []
        for entry in entries:
            for number, line in enumerate(entry.lines):
                lines += [".TP" if number == 0 else ".TQ", rf"\fB{text(line)}\fR"]
            lines.append(text(entry.text) or r"\&")
        body.append((f'"{text(heading.upper())}"', lines))
    body.append(("SEE ALSO", paragraphs("sandboxd(8), sandboxd-api(7)")))
    return page("sandboxd.toml", 5, "settings of sandboxd", [], body)


def _api() -> str:
    call = f"curl --unix-socket {config.DEFAULT_SOCKET} http://localhost/openapi.json"
    return page(
        "sandboxd-api", 7, "the HTTP API of sandboxd", [],
        [
            ("DESCRIPTION", [
                *paragraphs(
                    f"HTTP/1.1 with JSON on the Unix socket {config.DEFAULT_SOCKET}, or on what "
                    "SANDBOXD_SOCKET names. The caller is the uid at the other end: it sees its "
                    "own sandboxes, root and the members of the admin group see all. The exact "
                    "form of every request and answer is in the daemon's own document:"
                ),
                *literal([call]),
                *paragraphs(
                    "Every answer that is not 2xx is a JSON object with the member error: code, "
                    "message, hint, retryable, details, request_id. The code is stable."
                ),
            ]),
            ("REQUESTS", [line for route in ROUTES for line in _route(route)]),
            ("ERRORS", terms(_errors())),
            ("SEE ALSO", paragraphs("sandboxctl(1), sandboxd(8), sandboxd.toml(5)")),
        ],
    )  # fmt: skip


def _route(route: AnyRoute) -> list[str]:
    told = [f"{status}: {meaning}" for status, meaning in route.statuses.items()]
    if route.errors:
        told.append(f"errors: {', '.join(sorted({error.code for error in route.errors}))}")
    if route.access is not Access.CALLER:
        told.append(f"for {route.access.value}")
    return terms([(f"{route.method} {route.path}", f"{route.summary}. {'; '.join(told)}.")])


def _errors() -> Iterator[tuple[str, str]]:
    codes: dict[str, set[int]] = {}
    raised: set[type[errors.SandboxdError]] = {errors.InternalError}
    for route in ROUTES:
        raised.update(route.errors)
    for error in raised:
        codes.setdefault(error.code, set()).add(status_of(error))
    for code, statuses in sorted(codes.items()):
        yield code, f"HTTP {', '.join(map(str, sorted(statuses)))}"
