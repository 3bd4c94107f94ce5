# SPDX-License-Identifier: Apache-2.0
"""Options shared by several commands: limits, environment, metadata."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from sandboxd.core.limits import LIMITS, Owners, Unit
from sandboxd.core.quantity import parse_bytes, parse_cpus, parse_seconds


def count(text: str, *, least: int = 0, most: int | None = None) -> int:
    """Parse a whole number. Raises ValueError."""
    is_number = text.isascii() and text.isdigit()
    if not is_number or int(text) < least or (most is not None and int(text) > most):
        bounds = f", {least} or more" if most is None else f" from {least} to {most}"
        raise ValueError(f"must be a whole number{bounds}")
    return int(text)


# Metavar and parser of an option's value, by unit; a COUNT also has a maximum.
_VALUES: dict[Unit, tuple[str, Callable[[str], float]]] = {
    Unit.BYTES: ("SIZE", parse_bytes),
    Unit.BYTES_PER_SECOND: ("SIZE", parse_bytes),
    Unit.SECONDS: ("TIME", parse_seconds),
    Unit.CORES: ("CORES", parse_cpus),
    Unit.COUNT: ("N", count),
}
# Help texts for limits that are not given.
SERVERS, SANDBOXS, SAME = "the server's defaults", "the sandbox's", "as they are"


def option(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap `parse` for argparse, to keep the ValueError's text in the message."""

    def checked(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as exc:
            raise argparse.ArgumentTypeError(f"{text!r}: {exc}") from exc

    return checked


def add_limits(parser: argparse.ArgumentParser, default: str, *, has_disk: bool = True) -> None:
    """Add an option for each limit. default: help text on limits that are not given."""
    group = parser.add_argument_group(f"limits (where not given: {default})")
    for limit in LIMITS:
        metavar, parse = _VALUES[limit.unit]
        if limit.unit is Unit.COUNT:
            parse = partial(count, least=1, most=limit.most)
        # An unsupported option is hidden but parsed: the server's refusal gives the reason.
        is_shown = has_disk or limit.owners is not Owners.SANDBOX
        text = limit.text.replace("%", "%%") if is_shown else argparse.SUPPRESS
        kind = option(parse)
        group.add_argument(limit.option, dest=limit.name, type=kind, metavar=metavar, help=text)


def limits(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the given limits, as a body's `limits`."""
    given = {limit.name: getattr(arguments, limit.name) for limit in LIMITS}
    return {name: value for name, value in given.items() if value is not None}


def pair(text: str) -> tuple[str, str]:
    """Parse KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r}: must be KEY=VALUE")
    return key, value


def bind(text: str) -> dict[str, Any]:
    """Parse SOURCE:TARGET or SOURCE:TARGET:rw."""
    source, colon, target = text.removesuffix(":rw").partition(":")
    if not colon or not source or not target or ":" in target:
        raise argparse.ArgumentTypeError(f"{text!r}: must be SOURCE:TARGET or SOURCE:TARGET:rw")
    return {"source": source, "target": target, "writable": text.endswith(":rw")}


def env_pair(text: str) -> tuple[str, str]:
    """Parse KEY=VALUE, or KEY for the value in sandboxctl's own environment."""
    if "=" in text or not text:
        return pair(text)
    if text not in os.environ:
        raise argparse.ArgumentTypeError(f"{text!r}: not set here; give KEY=VALUE")
    return text, os.environ[text]


def add_env(parser: argparse.ArgumentParser) -> None:
    """Add --env."""
    parser.add_argument(
        "--env", "-e", action="append", type=env_pair, default=[], metavar="KEY[=VALUE]",
        help="environment (may be repeated); without a value, sandboxctl's own",
    )  # fmt: skip


def add_metadata(
    parser: argparse.ArgumentParser, text: str = "kept with the sandbox, for its owner's use"
) -> None:
    """Add --metadata."""
    parser.add_argument(
        "--metadata", action="append", type=pair, default=[], metavar="KEY=VALUE",
        help=f"{text} (may be repeated)",
    )  # fmt: skip


def add_place(parser: argparse.ArgumentParser) -> None:
    """Add the options of a new sandbox."""
    parser.add_argument("--name", help="the sandbox's name, unique among the owner's")
    parser.add_argument(
        "--isolation", choices=("auto", "none", "basic", "standard", "strict"),
        help="how far it is kept from the host (default: the server's)",
    )  # fmt: skip
    parser.add_argument(
        "--network", choices=("none", "loopback", "host"),
        help="what it can reach (default: loopback where the host can, else host)",
    )  # fmt: skip
    parser.add_argument(
        "--rootfs", metavar="IMAGE", help="an image of the server's in place of the host's /usr"
    )
    parser.add_argument(
        "--bind", dest="binds", action="append", type=bind, metavar="SOURCE:TARGET[:rw]",
        help="a path of the host's that the server allows (may be repeated)",
    )  # fmt: skip
    parser.add_argument(
        "--require", action="append", metavar="LIMIT",
        help="refuse where this host cannot hold LIMIT, such as memory_bytes (may be repeated)",
    )  # fmt: skip
    parser.add_argument(
        "--require-by",
        choices=("any", "kernel"),
        help="who has to hold the required limits; without --require: all limits",
    )
    add_metadata(parser)


def place(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of `add_place` that were given."""
    names = ("name", "isolation", "network", "rootfs", "binds", "require", "require_by")
    body = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    if arguments.metadata:
        body["metadata"] = dict(arguments.metadata)
    return body


def add_output_format(parser: argparse.ArgumentParser) -> None:
    """Add -o."""
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table",
        help="for people (the default) or as the API answers",
    )  # fmt: skip


def add_life(parser: argparse.ArgumentParser) -> None:
    """Add the options of a sandbox's lifetime."""
    kind = option(parse_seconds)
    parser.add_argument("--lifetime", type=kind, metavar="TIME", help="released after this")
    parser.add_argument(
        "--idle-timeout", type=kind, metavar="TIME", help="released when unused for this long"
    )


def life(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of `add_life` that were given."""
    fields = {"timeout_seconds": "lifetime", "idle_timeout_seconds": "idle_timeout"}
    return {
        field: value
        for field, name in fields.items()
        if (value := getattr(arguments, name)) is not None
    }
