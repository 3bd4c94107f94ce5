# SPDX-License-Identifier: Apache-2.0
"""sandboxctl cp."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

from sandboxd.client import file_routes, trees
from sandboxd.client.calls import Client
from sandboxd.client.results import Entry
from sandboxd.ctl.connect import connect
from sandboxd.ctl.exits import say
from sandboxd.ctl.progress import counted
from sandboxd.ctl.show import printable
from sandboxd.errors import FileMissing, InvalidRequest

_PIECE_BYTES = 256 << 10


class CopyEndpoint(NamedTuple):
    """One side of a copy; `sandbox` is None for this host."""

    sandbox: str | None
    path: str


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    text = "SANDBOX:PATH, a path here (./a:b for one with a colon), or - for standard"
    parser.add_argument("source", metavar="SOURCE", help=f"{text} input")
    parser.add_argument("target", metavar="TARGET", help=f"{text} output")


def execute(arguments: argparse.Namespace) -> int:
    """Copy a file or a whole directory."""
    source, target = place(arguments.source), place(arguments.target)
    if (source.sandbox is None) == (target.sandbox is None):
        raise InvalidRequest(
            "cannot copy: exactly one side must be SANDBOX:PATH",
            hint="copy between sandboxes by way of this host, or with - and a pipe",
        )
    client = connect(arguments)
    if source.sandbox is not None:
        _copy_out(client, source.sandbox, source.path, target.path)
    else:
        assert target.sandbox is not None
        _copy_in(client, source.path, target.sandbox, target.path)
    return 0


def place(text: str) -> CopyEndpoint:
    """Parse one side of a copy."""
    sandbox, colon, path = text.partition(":")
    is_name = sandbox and all(
        char.isascii() and (char.isalnum() or char == "-") for char in sandbox
    )
    return CopyEndpoint(sandbox, path) if colon and is_name else CopyEndpoint(None, text)


def _look(client: Client, sandbox: str, path: str) -> Entry | None:
    """Return the entry at a path; None if the path is missing."""
    try:
        answer = client.ask(file_routes.list_directory(sandbox, path, 0))
    except FileMissing:
        return None
    return Entry.of(answer["entries"][0])


def _copy_out(client: Client, sandbox: str, path: str, target: str) -> None:
    found = _look(client, sandbox, path)
    if found is None:
        raise FileMissing(f"cannot copy {path!r}: nothing is there in sandbox {sandbox}")
    name = os.path.basename(path.rstrip("/")) or sandbox
    if target != "-" and os.path.isdir(target):
        target = os.path.join(target, name)
    is_directory = found.type == "directory"
    if is_directory and target == "-":
        raise InvalidRequest(f"cannot copy {path!r} to standard output: it is a directory")
    route = file_routes.read_archive if is_directory else file_routes.read
    mode, mtime = found.kept
    with client.open(route(sandbox, path)) as chunks:
        size = None if is_directory else found.size_bytes
        pieces = counted(chunks, name, size)
        if target == "-":
            sys.stdout.buffer.writelines(pieces)
            sys.stdout.buffer.flush()
        else:
            trees.put(pieces, target, _leave_out, is_directory=is_directory, mode=mode, mtime=mtime)


def _leave_out(name: str, reason: str) -> None:
    say(f"leaving out {printable(name)}: {printable(reason)}")


def _copy_in(client: Client, path: str, sandbox: str, target: str) -> None:
    name = os.path.basename(os.path.abspath(path)) if path != "-" else "-"
    found = _look(client, sandbox, target)
    is_directory = found is not None and found.type == "directory"
    into = target.endswith("/") or not target or is_directory
    if into:
        if path == "-":
            raise InvalidRequest("cannot copy standard input to a directory: name a file in it")
        target = os.path.join(target, name)
    if os.path.isdir(path):
        client.ask(file_routes.make_dir(sandbox, target, None))
        pieces = counted(trees.pack(path, _leave_out), name, None)
        client.ask(file_routes.write_archive(sandbox, target, pieces))
    elif path == "-":
        pieces = counted(_read(sys.stdin.fileno()), name, None)
        client.ask(file_routes.write(sandbox, target, pieces))
    else:
        _file_in(client, path, sandbox, target)


def _file_in(client: Client, path: str, sandbox: str, target: str) -> None:
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        pieces = counted(_read(file.fileno()), os.path.basename(path), found.st_size)
        mode = found.st_mode & 0o777
        # No size_bytes: the file may grow during the copy.
        client.ask(file_routes.write(sandbox, target, pieces, mode=mode, mtime=int(found.st_mtime)))


def _read(descriptor: int) -> Iterator[bytes]:
    while piece := os.read(descriptor, _PIECE_BYTES):
        yield piece
