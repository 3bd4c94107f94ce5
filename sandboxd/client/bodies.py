# SPDX-License-Identifier: Apache-2.0
"""Python arguments as request bodies, for both clients."""

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
# Limit name to quantity. The value is object: a type checker infers a literal dict of str and float
# values as dict[str, object].
Limits = Mapping[str, object]
Stdin = str | bytes | Literal[True]
# Rows and columns; True = DEFAULT_TERMINAL.
Terminal = bool | tuple[int, int]
DEFAULT_TERMINAL = (24, 80)
# A file's content, or (content, permission bits); the default bits are 0644.
NewFile = str | bytes | tuple[str | bytes, int]
Body = dict[str, Any]
# Longer input is streamed: the API refuses a larger body, and a streamed request cannot be sent
# again.
MAX_INLINE_BYTES = 1 << 20
_PIECE_BYTES = 256 << 10
Isolation = Literal["auto", "none", "basic", "standard", "strict"]
Network = Literal["none", "loopback", "host"]
# {"source": path, "target": path}, and "writable": True for a writable bind.
Bind = Mapping[str, str | bool]


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that are not None, mappings and sequences as plain dicts and lists."""
    return {name: _plain(value) for name, value in fields.items() if value is not None}


def command(cmd: str | Sequence[str]) -> dict[str, Any]:
    """Return the body's command field: a str is for the shell, a sequence is an argv."""
    if isinstance(cmd, str):
        return {"command": cmd}
    return {"argv": [*cmd]}


def standard_input(stdin: Stdin | None, *, is_open: bool = False) -> tuple[Body, bytes | None]:
    """Return the body's fields, and the bytes to write once the program runs (None = no bytes).

    stdin: a str or bytes is the whole input; True keeps the input open. is_open: the input is open
    in any case, as with a terminal. Raises InvalidRequest.
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
    """Split `data` into the pieces of a streamed request."""
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
    """Return the body of an execution, and the bytes to write to stdin once the program runs."""
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
    """Return the body of a run in a new sandbox. Raises InvalidRequest for streamed input.

    execution_body: the result of `execution`. The sandbox always has a name, so that a caller who
    leaves before the answer can release the sandbox.
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
    """Return the seconds to wait at the start: 0 if the caller works meanwhile or input is open."""
    is_open = body.get("stdin_open") or "tty" in body
    return 0.0 if is_watched or is_open else SHORT_SECONDS


def kill(signal: int | str | None, grace: Quantity | None) -> dict[str, Any]:
    """Return the body of a kill."""
    return given(signal=signal, grace_seconds=grace)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [*value]
    return value
