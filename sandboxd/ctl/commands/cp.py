# SPDX-License-Identifier: Apache-2.0
"""sandboxctl cp."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sandboxd.client import file_routes
from sandboxd.client.calls import Client
from sandboxd.client.refusals import NoBody
from sandboxd.ctl import tar
from sandboxd.ctl.connect import connect
from sandboxd.ctl.progress import counted
from sandboxd.errors import FileMissing, InvalidRequest

_PIECE_BYTES = 256 << 10


class Place(NamedTuple):
    """One side; `sandbox` is None on this host."""

    sandbox: str | None
    path: str


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
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


def place(text: str) -> Place:
    """From an argument."""
    sandbox, colon, path = text.partition(":")
    is_name = sandbox and all(
        char.isascii() and (char.isalnum() or char == "-") for char in sandbox
    )
    return Place(sandbox, path) if colon and is_name else Place(None, text)


def _kind(client: Client, sandbox: str, path: str) -> tuple[str, int, int] | None:
    """Type, mode and size of what is there; None where nothing is."""
    try:
        with client.transport.open(file_routes.look(sandbox, path)) as answer:
            headers = answer.headers
    except NoBody as exc:
        if exc.status != 404:
            # An answer to GET has the reason, which one to HEAD cannot have.
            client.ask(file_routes.list_directory(sandbox, path, 0))
            raise
        client.get_sandbox(sandbox)
        return None
    mode, size = int(headers["x-file-mode"], 8), int(headers.get("content-length", 0))
    return headers["x-file-type"], mode & 0o777, size


def _copy_out(client: Client, sandbox: str, path: str, target: str) -> None:
    found = _kind(client, sandbox, path)
    if found is None:
        raise FileMissing(f"cannot copy {path!r}: nothing is there in sandbox {sandbox}")
    kind, mode, size = found
    name = os.path.basename(path.rstrip("/")) or sandbox
    if target != "-" and os.path.isdir(target):
        target = os.path.join(target, name)
    if kind == "directory":
        _directory_out(client, sandbox, path, target)
        return
    with client.transport.open(file_routes.read(sandbox, path)) as answer:
        pieces = counted(answer.chunks(), name, size)
        if target == "-":
            sys.stdout.buffer.writelines(pieces)
            sys.stdout.buffer.flush()
        else:
            _replace_file(target, pieces, mode)


def _directory_out(client: Client, sandbox: str, path: str, target: str) -> None:
    if target == "-":
        raise InvalidRequest(f"cannot copy {path!r} to standard output: it is a directory")
    os.makedirs(target, exist_ok=True)
    with client.transport.open(file_routes.read_archive(sandbox, path)) as answer:
        pieces = counted(answer.chunks(), os.path.basename(target), None)
        tar.unpack(iter(pieces), os.path.abspath(target))


def _replace_file(path: str, pieces: Iterable[bytes], mode: int) -> None:
    """Whole or not at all."""
    directory = os.path.dirname(path) or "."
    descriptor, made = tempfile.mkstemp(prefix=".sandboxctl-", dir=directory)
    try:
        with open(descriptor, "wb") as file:
            file.writelines(pieces)
            os.fchmod(file.fileno(), mode & ~_umask())
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise


def _umask() -> int:
    """Reading it is setting it (umask(2))."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _copy_in(client: Client, path: str, sandbox: str, target: str) -> None:
    name = os.path.basename(os.path.abspath(path)) if path != "-" else "-"
    found = _kind(client, sandbox, target)
    into = target.endswith("/") or not target or (found is not None and found[0] == "directory")
    if into:
        if path == "-":
            raise InvalidRequest("cannot copy standard input to a directory: name a file in it")
        target = os.path.join(target, name)
    if os.path.isdir(path):
        client.ask(file_routes.make_dir(sandbox, target, None))
        pieces = counted(tar.pack(path), name, None)
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
        # Its size is not promised: it may grow meanwhile.
        client.ask(file_routes.write(sandbox, target, pieces, mode=mode))


def _read(descriptor: int) -> Iterator[bytes]:
    while piece := os.read(descriptor, _PIECE_BYTES):
        yield piece
