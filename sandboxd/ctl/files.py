# SPDX-License-Identifier: Apache-2.0
"""Files of one execution: streams, the result as JSON, and files sent before the start."""

from __future__ import annotations

import argparse
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sandboxd.client.calls import JsonObject
from sandboxd.ctl import exits
from sandboxd.errors import InvalidRequest, SandboxdError

# After base64 and JSON below the daemon's limit for a request.
_MAX_SENT_BYTES = 5 << 20
_OUTPUT = ("stdout", "stderr", "stdout_base64", "stderr_base64")


def add_streams(parser: argparse.ArgumentParser) -> None:
    """Add --stdin-file, --stdout, --stderr and --meta."""
    parser.add_argument("--stdin-file", metavar="FILE", help="its standard input, in place of -i")
    for stream in ("stdout", "stderr"):
        parser.add_argument(
            f"--{stream}", dest=f"{stream}_file", metavar="FILE", help=f"write its {stream} to FILE"
        )
    parser.add_argument(
        "--meta", metavar="FILE",
        help="write how it ended and what it used to FILE, as JSON; or what was refused",
    )  # fmt: skip


def check_streams(arguments: argparse.Namespace) -> None:
    """Raises InvalidRequest for options that contradict each other."""
    if "-" in (arguments.stdin_file, arguments.meta, *targets(arguments).values()):
        raise InvalidRequest(
            "cannot use - for standard input or output here: give a file",
            hint="/dev/stdin and /dev/stdout name them; ./- is a file of that name",
        )
    if arguments.stdin_file is not None and (arguments.stdin or arguments.tty):
        raise InvalidRequest("cannot take its input from two places: leave -i and -t out")
    if arguments.tty and (arguments.stdout_file or arguments.stderr_file):
        raise InvalidRequest("cannot write what goes to the terminal to a file: leave -t out")

    is_left = getattr(arguments, "detach", False)
    if is_left and (targets(arguments) or arguments.stdin_file or arguments.meta):
        raise InvalidRequest("cannot leave it running and use files for it: leave -d out")


def targets(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the file path of each stream that goes to a file."""
    named = {"stdout": arguments.stdout_file, "stderr": arguments.stderr_file}
    return {stream: path for stream, path in named.items() if path is not None}


def standard_input(path: str) -> None:
    """Open the file at `path` as standard input of sandboxctl."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(descriptor, 0)
    os.close(descriptor)


@contextmanager
def telling(path: str | None) -> Iterator[Callable[[JsonObject, int], None]]:
    """Give a function that writes execution and exit code to the file of --meta, as of refusals."""
    if path is None:
        yield lambda execution, code: None
        return

    def tell(execution: JsonObject, code: int) -> None:
        kept = {name: value for name, value in execution.items() if name not in _OUTPUT}
        _write(path, {**kept, "exit_status": code})

    try:
        yield tell
    except SandboxdError as exc:
        error = {"code": exc.code, "message": exc.message, "details": dict(exc.details)}
        _write(path, {"error": error, "exit_status": exits.of_error(exc)})
        raise


def _write(path: str, value: dict[str, Any]) -> None:
    data = f"{json.dumps(value, indent=2)}\n".encode()
    # A device, a pipe or a link is written in place; a file whole, since a reader may wait for it.
    if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
        with open(path, "wb") as file:
            file.write(data)
        return
    # Imported late: most commands write no file.
    from sandboxd.osutil.replacement import replace_file

    replace_file(path, [data], 0o666)


def add_sent(parser: argparse.ArgumentParser) -> None:
    """Add --file."""
    parser.add_argument(
        "--file", dest="sent", action="append", default=[], metavar="SRC[:DST]",
        help="have this file there before it runs, as DST below the home, or by its absolute path "
        "inside (default: its name; may be repeated)",
    )  # fmt: skip


def sent(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the field of a run with the files of --file. Raises InvalidRequest, OSError."""
    if not arguments.sent:
        return {}
    # Imported late: most commands need no base64.
    import base64

    files, left = [], _MAX_SENT_BYTES
    for text in arguments.sent:
        source, colon, target = (text, "", "") if os.path.exists(text) else text.partition(":")
        if os.path.isdir(source):
            raise InvalidRequest(
                f"cannot send {source!r} with a run: it is a directory",
                hint="create a sandbox, and use cp and exec",
            )
        with open(source, "rb") as file:
            data = file.read(left + 1)
            mode = os.fstat(file.fileno()).st_mode & 0o777
        left -= len(data)
        if left < 0:
            raise InvalidRequest(
                f"cannot send {source!r} with a run: more than {_MAX_SENT_BYTES >> 20} MiB",
                hint="create a sandbox, and use cp and exec",
            )
        path = target if colon and target else os.path.basename(source)
        encoded = base64.b64encode(data).decode("ascii")
        files.append({"path": path, "base64": encoded, "mode": f"{mode:04o}"})
    return {"files": files}
