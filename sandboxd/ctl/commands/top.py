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

from sandboxd.client.calls import Answer
from sandboxd.ctl import usage_table
from sandboxd.ctl.connect import connect
from sandboxd.ctl.interrupts import Interrupts
from sandboxd.ctl.limits import option
from sandboxd.ctl.samples import Ended, Sampler, Samples
from sandboxd.ctl.show import table
from sandboxd.errors import InvalidRequest
from sandboxd.quantity import parse_seconds

_KEYS = {name[0]: name for name in usage_table.ORDERS}
# More than a screen has.
_MOST_ENDED = 200
# xterm's other screen and no cursor, and both back; home, and erase what is below.
_ENTER, _LEAVE, _HOME, _ERASE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H", "\x1b[J"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    parser.add_argument(
        "--sort", choices=tuple(usage_table.ORDERS), default="cpu", help="largest first"
    )
    parser.add_argument(
        "--every", type=option(parse_seconds), default=2.0, metavar="TIME", help="default: 2s"
    )
    parser.add_argument("sandboxes", nargs="*", metavar="SANDBOX", help="id or name; default: all")


def execute(arguments: argparse.Namespace) -> int:
    """Show what sandboxes use until q is pressed; c, m, p, i and d choose the order."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidRequest(
            "cannot show a live table: not a terminal", hint="use sandboxctl stats"
        )
    client = connect(arguments)
    sampler = Sampler(client, arguments.sandboxes, by_execution=True)
    ended, order = Ended(client, _MOST_ENDED), arguments.sort
    sampler.sample()
    with Interrupts(), _screen():
        key = _key(min(0.5, arguments.every))
        while key != "q":
            order = _KEYS.get(key, order)
            began = time.monotonic()
            columns, rows = os.get_terminal_size()
            _draw(lines(sampler.sample(), ended.look(), order, rows), columns, rows)
            key = _key(max(0.0, began + arguments.every - time.monotonic()))
    return 0


def lines(samples: Samples, ended: list[Answer], order: str, height: int) -> list[str]:
    """The whole of the screen, of at most `height` lines: sandboxes and running executions share
    it, and those that ended last have what is left."""
    running = sum(sample.metrics["executions"]["running"] for sample in samples.sandboxes)
    keys = ", ".join(f"{key} {name}" for key, name in _KEYS.items())
    title = f"{len(samples.sandboxes)} sandboxes, {running} executions; by {order} ({keys}; q ends)"
    found = [title, "", *table(usage_table.rows(samples.sandboxes, order))]
    if samples.executions:
        found = _cut(found, max(height // 2, height - len(samples.executions) - 3))
        found += ["", *table(usage_table.running_rows(samples.executions, order))]
    room = height - len(found) - 2
    if room > 0 and ended:
        found += ["", *table(usage_table.ended_rows(ended[:room]))]
    return _cut(found, height)


def _cut(found: list[str], height: int) -> list[str]:
    if len(found) <= height or height < 1:
        return found[: max(0, height)]
    return [*found[: height - 1], f"... {len(found) - height + 1} more"]


def _draw(found: list[str], columns: int, rows: int) -> None:
    shown = [f"{line[:columns]}\x1b[K" for line in found[:rows]]
    sys.stdout.write(_HOME + "\r\n".join(shown) + _ERASE)
    sys.stdout.flush()


def _key(seconds: float) -> str:
    """The key that was pressed within `seconds`, or nothing."""
    readable, _, _ = select.select([sys.stdin.fileno()], [], [], seconds)
    if not readable:
        return ""
    # A terminal that hung up reads as its end.
    return os.read(sys.stdin.fileno(), 1).decode("ascii", "replace") or "q"


@contextmanager
def _screen() -> Iterator[None]:
    before = termios.tcgetattr(sys.stdin.fileno())
    try:
        tty.setcbreak(sys.stdin.fileno())
        sys.stdout.write(_ENTER)
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
