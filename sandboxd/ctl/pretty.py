# SPDX-License-Identifier: Apache-2.0
"""Tables, the live screen and progress bars on a terminal, by rich; loaded on terminals alone.

The text comes from untrusted programs and callers: cells become Text of printable characters,
without markup, emoji codes or highlighting. rich obeys NO_COLOR, TERM and COLUMNS.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Column, Table
from rich.text import Text

from sandboxd.ctl.columns import fit
from sandboxd.ctl.show import Part, printable

# In a table that is too wide the last column shrinks: these are folded, the rest are cut.
_FOLDED = {"HOW", "VALUE"}
# Columns that also shrink: the text is as long as a caller likes, or a sentence.
_ELASTIC = {"NAME", "FIELD", "VERDICT"}
# Minimum cells of the first column: more than an id or a limit's name has.
_MOST_KEPT_CELLS = 28
_MOST_LABEL_CELLS = 30
_STATES = {
    "ready": "green", "suspended": "yellow", "releasing": "yellow",
    "RUNNING": "green", "PENDING": "yellow", "EXITED": "", "LOST": "bold red",
    "kernel": "green", "supervisor": "yellow", "none": "bold red",
    "exited with code 0": "green",
}  # fmt: skip
_OF_STATE = {"STATE", "STATUS", "VERDICT", "ENFORCED BY"}
# Statuses of executions that did not end by themselves.
_BAD = ("OOM_", "TIMED_", "CPU_", "OUTPUT_", "DISK_", "KILLED", "LOST", "SIGNALED")
_NEAR_LIMIT = ((90, "red"), (70, "yellow"), (0, "green"))


def console(*, stderr: bool = False) -> Console:
    """Return a console that shows text literally."""
    stream = sys.stderr if stderr else sys.stdout
    # A terminal's encoding may lack the ellipsis.
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    return Console(stderr=stderr, markup=False, emoji=False, highlight=False)


def print_parts(parts: Sequence[Part]) -> None:
    """Print lines and tables on stdout."""
    target = console()
    for part in parts:
        fitted = part if isinstance(part, str) else fit(part, target.width)
        target.print(_renderable(fitted))


class Screen:
    """The terminal's alternate screen, redrawn at each `show`."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def show(self, parts: Sequence[Part]) -> None:
        """Show lines and tables, cut at the edges."""
        self._live.update(Group(*(_renderable(part, cuts=True) for part in parts)), refresh=True)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self._live.console.size


@contextmanager
def screen() -> Iterator[Screen]:
    """Switch to the alternate screen; the terminal's content is restored at the end."""
    with Live(
        console=console(), screen=True, auto_refresh=False, redirect_stdout=False,
        redirect_stderr=False,
    ) as live:  # fmt: skip
        yield Screen(live)


class Bar:
    """A progress bar of bytes on stderr, erased by `stop`."""

    def __init__(self, label: str, total_bytes: int | None) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(),
            DownloadColumn(binary_units=True), TransferSpeedColumn(),
            console=console(stderr=True), transient=True, redirect_stdout=False,
            redirect_stderr=False,
        )  # fmt: skip
        text = printable(label)
        if cell_len(text) > _MOST_LABEL_CELLS:
            text = set_cell_size(text, _MOST_LABEL_CELLS - 3) + "..."
        self._task = self._progress.add_task(text, total=total_bytes)
        self._progress.start()

    def show(self, done_bytes: int) -> None:
        """Show the number of bytes done."""
        self._progress.update(self._task, completed=done_bytes)

    def stop(self) -> None:
        """Erase the bar."""
        self._progress.stop()


def _renderable(part: Part, *, cuts: bool = False) -> RenderableType:
    if isinstance(part, str):
        return Text(printable(part), no_wrap=cuts, overflow="ellipsis" if cuts else "fold")
    header, *rows = part
    last = len(header) - 1
    columns = [
        Column(name, no_wrap=number < last and name not in _ELASTIC)
        for number, name in enumerate(header)
    ]
    # The first column is an id or a name, useless if cut.
    longest = max(cell_len(printable(row[0])) for row in part)
    columns[0].min_width = min(longest, _MOST_KEPT_CELLS)
    table = Table(*columns, box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    folds_last = not cuts and header[last] in _FOLDED
    for row in rows:
        table.add_row(
            *(
                _cell(header[number], text, folds=folds_last and number == last)
                for number, text in enumerate(row)
            )
        )
    return table


def _cell(column: str, text: str, *, folds: bool) -> Text:
    return Text(
        printable(text), style=style(column, text), no_wrap=not folds,
        overflow="fold" if folds else "ellipsis",
    )  # fmt: skip


def style(column: str, text: str) -> str:
    """Return the rich style of a cell."""
    if column == "OF LIMIT" and text.endswith("%"):
        percent = int(text.rpartition("]")[2].strip(" %"))
        return next(name for least, name in _NEAR_LIMIT if percent >= least)
    if column not in _OF_STATE:
        return ""
    return _STATES.get(text, "red" if text.startswith(_BAD) else "")
