# SPDX-License-Identifier: Apache-2.0
"""From Python's arguments to the bodies of requests, for both clients."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from sandboxd.client.file_routes import octal
from sandboxd.client.routes import SHORT_SECONDS
from sandboxd.errors import InvalidRequest

# Sizes as "512M", durations as "90s", cores as 1.5 or "150%", or plain numbers.
Quantity = float | str
# Names of limits to quantities; a literal dict of both kinds is inferred as one of objects.
Limits = Mapping[str, object]
Stdin = str | bytes | Literal[True]
# Rows and columns; True = those of DEFAULT_TERMINAL.
Terminal = bool | tuple[int, int]
DEFAULT_TERMINAL = (24, 80)
# A file's content, and its permission bits where these are not to be 0644.
NewFile = str | bytes | tuple[str | bytes, int]
Body = dict[str, Any]
# More is streamed: a request with it could not be sent again, and a larger one is refused.
MAX_INLINE_BYTES = 1 << 20
_PIECE_BYTES = 256 << 10
Isolation = Literal["auto", "none", "basic", "standard", "strict"]
Network = Literal["none", "loopback", "host"]
# {"source": path, "target": path} and, where it may be written, "writable": True.
Bind = Mapping[str, str | bool]


def given(**fields: Any) -> dict[str, Any]:
    """The fields that are not None; mappings and lists as JSON has them."""
    return {name: _plain(value) for name, value in fields.items() if value is not None}


def command(cmd: str | Sequence[str]) -> dict[str, Any]:
    """A str runs by the shell, a sequence exactly."""
    if isinstance(cmd, str):
        return {"command": cmd}
    return {"argv": [*cmd]}


def standard_input(stdin: Stdin | None, *, is_open: bool = False) -> tuple[Body, bytes | None]:
    """The fields of a body, and what has to be written once the program runs; None = nothing.

    Text and bytes are all of its input; True leaves it open. is_open: it is open anyhow, as a
    terminal's is. Raises InvalidRequest.
    """
    match stdin:
        case None:
            return {}, None
        case True:
            return ({} if is_open else {"stdin_open": True}), None
        case str() | bytes():
            data = _encoded(stdin)
        case _:
            raise InvalidRequest.field("stdin", "must be a str, bytes or True")
    if is_open:
        return {}, data
    if len(data) > MAX_INLINE_BYTES:
        return {"stdin_open": True}, data
    if isinstance(stdin, str):
        return {"stdin": stdin}, None
    return {"stdin_base64": base64.b64encode(data).decode("ascii")}, None


def _encoded(stdin: str | bytes) -> bytes:
    try:
        return stdin.encode() if isinstance(stdin, str) else stdin
    except UnicodeEncodeError as exc:
        raise InvalidRequest.field("stdin", "must be valid Unicode, without surrogates") from exc


def pieces(data: bytes) -> Iterator[bytes]:
    """`data` as it is sent in a stream."""
    view = memoryview(data)
    return (bytes(view[at : at + _PIECE_BYTES]) for at in range(0, len(data), _PIECE_BYTES))


def execution(
    cmd: str | Sequence[str],
    *,
    env: Mapping[str, str] | None,
    cwd: str | None,
    stdin: Stdin | None,
    timeout: Quantity | None,
    limits: Limits | None,
    merge_output: bool,
    kill_grace: Quantity | None,
    tty: Terminal = False,
) -> tuple[Body, bytes | None]:
    """The body of an execution, and what of its input is written once the program runs."""
    fields = given(
        env=env, cwd=cwd, timeout_seconds=timeout, limits=limits, kill_grace_seconds=kill_grace,
        merge_output=merge_output or None,
    )  # fmt: skip
    if tty is not False:
        rows, cols = tty if isinstance(tty, tuple) else DEFAULT_TERMINAL
        fields["tty"] = {"rows": rows, "cols": cols}
    given_input, rest = standard_input(stdin, is_open=tty is not False)
    return {**command(cmd), **given_input, **fields}, rest


def once(
    execution_body: tuple[Body, bytes | None],
    *,
    name: str | None,
    files: Mapping[str, NewFile] | None,
    read_files: Sequence[str],
    **place: Any,
) -> Body:
    """The body of a run in a sandbox of its own, from that of its execution. Raises InvalidRequest.

    The sandbox always has a name, so that a caller who leaves before the answer can release it.
    """
    body, rest = execution_body
    if rest is not None:
        raise InvalidRequest.field(
            "stdin", f"must be at most {MAX_INLINE_BYTES} bytes: pass more as one of `files`"
        )
    new = [_new_file(path, file) for path, file in (files or {}).items()]
    name = name or f"once-{os.urandom(8).hex()}"
    return {**body, **given(name=name, files=new or None, read_files=read_files or None, **place)}


def _new_file(path: str, file: NewFile) -> Body:
    content, mode = file if isinstance(file, tuple) else (file, None)
    fields = {"path": path} if mode is None else {"path": path, "mode": octal(mode)}
    if isinstance(content, str):
        return {**fields, "text": content}
    return {**fields, "base64": base64.b64encode(content).decode("ascii")}


def first_wait(body: Mapping[str, Any], *, is_watched: bool) -> float:
    """How long the request that starts an execution waits for its end, in seconds.

    is_watched: somebody does something meanwhile, as those do whose input stays open.
    """
    is_open = body.get("stdin_open") or "tty" in body
    return 0.0 if is_watched or is_open else SHORT_SECONDS


def kill(signal: int | str | None, grace: Quantity | None) -> dict[str, Any]:
    """The body of a kill."""
    return given(signal=signal, grace_seconds=grace)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [*value]
    return value
