# SPDX-License-Identifier: Apache-2.0
"""From Python's arguments to the bodies of requests, for both clients."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from sandboxd.client.routes import SHORT_SECONDS
from sandboxd.errors import InvalidRequest

# Sizes as "512M", durations as "90s", cores as 1.5 or "150%", or plain numbers.
Quantity = float | str
# Names of limits to quantities; a literal dict of both kinds is inferred as one of objects.
Limits = Mapping[str, object]
Stdin = str | bytes | Literal[True]
Isolation = Literal["auto", "basic", "standard", "strict"]
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


def standard_input(stdin: Stdin | None) -> dict[str, Any]:
    """Text and bytes are all of it; True leaves it open. Raises InvalidRequest."""
    match stdin:
        case None:
            return {}
        case True:
            return {"stdin_open": True}
        case str():
            return {"stdin": stdin}
        case bytes():
            return {"stdin_base64": base64.b64encode(stdin).decode("ascii")}
        case _:
            raise InvalidRequest.field("stdin", "must be a str, bytes or True")


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
) -> dict[str, Any]:
    """The body of an execution."""
    fields = given(
        env=env, cwd=cwd, timeout_seconds=timeout, limits=limits, kill_grace_seconds=kill_grace,
        merge_output=merge_output or None,
    )  # fmt: skip
    return {**command(cmd), **standard_input(stdin), **fields}


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
