# SPDX-License-Identifier: Apache-2.0
"""The type of a route. The table of routes is api/table.py."""

from __future__ import annotations

import enum
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import unquote_to_bytes

from aiohttp import web
from pydantic import BaseModel

from sandboxd.api.responses import Reply
from sandboxd.api.seen import Seen
from sandboxd.api.shares import Share
from sandboxd.api.work import Work
from sandboxd.core.entries import clean_path
from sandboxd.core.model import Caller
from sandboxd.core.names import is_id, is_name
from sandboxd.engine.engine import Engine
from sandboxd.engine.requests import Origin
from sandboxd.errors import ExecutionNotFound, SandboxdError, SandboxNotFound
from sandboxd.wire.requests import Request

B = TypeVar("B", bound=Request)
Q = TypeVar("Q", bound=Request)
_PARAMETER = re.compile(r"\{(\w+)\}")
# The rest of a path, slashes included; before an empty rest the slash may be missing.
_REST = "/{path}"
_REST_PATTERN = r"(?:/(?P<path>.*))?"
SMALL_BODY_BYTES = 64 << 10
LARGE_BODY_BYTES = 8 << 20


class Access(enum.Enum):
    """The callers that may use a route."""

    ANYONE = "anyone, also a peer whom the kernel does not name"
    CALLER = "any caller; what is not the caller's does not exist for it"
    ADMIN = "root and members of the admin group"


@dataclass(frozen=True, slots=True)
class Call(Generic[B, Q]):
    """One validated request."""

    engine: Engine
    work: Work
    caller: Caller
    bodies: list[B]
    query: Q
    sandbox: str
    execution: str
    request: web.BaseRequest
    request_id: str
    origin: Origin
    seen: Seen
    share: Share
    # Relative to the sandbox's home; b"" is the home.
    path: bytes = b""

    @property
    def body(self) -> B:
        """Return the body; not after `drop_body`."""
        return self.bodies[0]

    def drop_body(self) -> None:
        """Free the body, since the rest of the request may take as long as an execution."""
        self.bodies.clear()
        self.share.release()


Handler = Callable[[Call[B, Q]], Awaitable[Reply | web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route(Generic[B, Q]):
    """A method of a path, with the facts that the OpenAPI document tells clients.

    statuses: statuses of success, with descriptions. errors: errors beyond those of every route.
    answer: None = no JSON body. streams_body: the handler reads the body, raw bytes of any length
    and type (api/decode.py, `body_chunks`). headers: request headers beyond those of every route,
    with descriptions. event_data: the data of each Server-Sent Event.
    """

    method: str
    path: str
    handler: Handler[B, Q]
    summary: str
    body: type[B]
    query: type[Q]
    answer: type[BaseModel] | None
    statuses: Mapping[int, str]
    errors: tuple[type[SandboxdError], ...] = ()
    access: Access = Access.CALLER
    max_body_bytes: int = SMALL_BODY_BYTES
    raw_type: str | None = None
    streams_body: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    event_data: type[BaseModel] | None = None
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        expression = self.path.removesuffix(_REST)
        rest = _REST_PATTERN if expression != self.path else ""
        expression = _PARAMETER.sub(r"(?P<\1>[^/]+)", expression) + rest
        object.__setattr__(self, "pattern", re.compile(expression, re.DOTALL))

    @property
    def takes_key(self) -> bool:
        """Whether the route takes an Idempotency-Key."""
        return self.method == "POST" and not self.streams_body

    @property
    def parameters(self) -> list[str]:
        """Return the names of the path's parameters."""
        return _PARAMETER.findall(self.path)


AnyRoute = Route[Any, Any]


def path_parameter(values: Mapping[str, str | None]) -> bytes:
    """Return the path in a sandbox, decoded once. Raises InvalidRequest.

    `%2F` separates like `/`, so that both `//tmp` and `/%2Ftmp` name /tmp.
    """
    sent = values.get("path") or ""
    return clean_path(unquote_to_bytes(sent.encode("utf-8", "surrogateescape")), "path")


def check_parameters(values: Mapping[str, str | None]) -> tuple[str, str]:
    """Return sandbox and execution of a path, "" for a missing parameter.

    The values are checked as sent, without decoding: no id and no name has a percent-encoded
    character. Raises SandboxNotFound and ExecutionNotFound.
    """
    sandbox, execution = values.get("sandbox") or "", values.get("execution") or ""
    if sandbox and not (is_id(sandbox) or is_name(sandbox)):
        raise SandboxNotFound(f"cannot find sandbox {sandbox[:64]!r}: not an id or a name")
    if execution and not is_id(execution):
        raise ExecutionNotFound(f"cannot find execution {execution[:64]!r}: not an id")
    return sandbox, execution
