# SPDX-License-Identifier: Apache-2.0
"""sandboxctl top."""

from __future__ import annotations

import argparse
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxd.client.calls import JsonObject
from sandboxd.client.request import AWAY, Absence
from sandboxd.core.quantity import parse_seconds
from sandboxd.ctl import draining, usage_table
from sandboxd.ctl.columns import fit
from sandboxd.ctl.connect import connect
from sandboxd.ctl.interrupts import Interrupts
from sandboxd.ctl.limits import option
from sandboxd.ctl.samples import Ended, Sampler, Samples
from sandboxd.ctl.show import Part, number_of
from sandboxd.errors import InvalidRequest

_KEYS = {name[0]: name for name in usage_table.ORDERS}
_HELP = "q ends, " + " ".join(f"{key}({name[1:]})" for key, name in _KEYS.items())
_AWAY = "sandboxd is away; this is the last that it told:"
# More rows than a screen has.
_MOST_ENDED = 200


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--sort", choices=tuple(usage_table.ORDERS), default="cpu", help="largest first"
    )
    parser.add_argument(
        "--every", type=option(parse_seconds), default=2.0, metavar="TIME", help="default: 2s"
    )
    parser.add_argument("sandboxes", nargs="*", metavar="SANDBOX", help="id or name; default: all")


def execute(arguments: argparse.Namespace) -> int:
    """Show the usage of sandboxes until q is pressed; c, m, p, i and d choose the order."""
    can_move = os.environ.get("TERM", "dumb") not in ("", "dumb")
    if not (sys.stdin.isatty() and sys.stdout.isatty() and can_move):
        raise InvalidRequest(
            "cannot show a live table: not a terminal that can show one",
            hint="use sandboxctl stats",
        )
    # Imported after the checks, since this import loads rich.
    from sandboxd.ctl.pretty import screen

    client = connect(arguments)
    sampler = Sampler(client, arguments.sandboxes, by_execution=True)
    ended, order = Ended(client, _MOST_ENDED), arguments.sort
    samples, found, absence = sampler.sample(), list[JsonObject](), Absence()
    with Interrupts(), _single_keys(), screen() as shown:
        key = _key(min(0.5, arguments.every))
        while key != "q":
            order = _KEYS.get(key, order)
            began = time.monotonic()
            try:
                told = draining.words(client.host())
                samples, found = sampler.sample(), ended.look()
                absence.end()
                pause = max(0.0, began + arguments.every - time.monotonic())
            except AWAY as exc:
                told, pause = _AWAY, absence.pause_seconds(exc)
            width, height = shown.size
            lines = parts(samples, found, order, height - bool(told), width)
            shown.show([told, *lines] if told else lines)
            key = _key(pause)
    return 0


def parts(
    samples: Samples, ended: list[JsonObject], order: str, height: int, width: int
) -> list[Part]:
    """Return the screen of at most `height` lines.

    Sandboxes and running executions share the lines; ended executions get the rest. Columns that do
    not fit into `width` are dropped, the least important first.
    """
    boxes = [sample.subject for sample in samples.sandboxes]
    names = {box["id"]: box["name"] for box in boxes if box["name"]}
    rows = fit(usage_table.rows(samples.sandboxes, order), width)
    running = sum(sample.metrics["executions"]["running"] for sample in samples.sandboxes)
    boxes_told = number_of(len(samples.sandboxes), "sandbox")
    title = f"{boxes_told}, {number_of(running, 'execution')} by {order}; {_HELP}"
    found: list[Part] = [title, ""]
    room = height - 2
    if samples.executions:
        # With the line between the tables.
        below = len(samples.executions) + 2
        found += _cut(rows, max(height // 2 - 2, room - below))
        room = height - _lines(found) - 1
        running_rows = usage_table.running_rows(samples.executions, order, names)
        found += ["", *_cut(fit(running_rows, width), room)]
    else:
        found += _cut(rows, room)
    room = height - _lines(found) - 2
    if room > 0 and ended:
        found += ["", fit(usage_table.ended_rows(ended[:room], names), width)]
    return found if _lines(found) <= height else found[: max(0, height)]


def _lines(found: list[Part]) -> int:
    return sum(1 if isinstance(part, str) else len(part) for part in found)


def _cut(rows: list[tuple[str, ...]], room: int) -> list[Part]:
    """Return a table of at most `room` lines, with a note on the omitted rows."""
    if len(rows) <= room:
        return [rows]
    if room < 3:
        return [f"... {len(rows) - 1} more"]
    return [rows[: room - 1], f"... {len(rows) - room + 1} more"]


def _key(seconds: float) -> str:
    """Return the key pressed within `seconds`, or ""."""
    readable, _, _ = select.select([sys.stdin.fileno()], [], [], seconds)
    if not readable:
        return ""
    # A terminal that hung up reads as its end: quit.
    return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace") or "q"


@contextmanager
def _single_keys() -> Iterator[None]:
    """Read keys without line buffering and echo."""
    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        tty.setcbreak(sys.stdin.fileno(), termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
