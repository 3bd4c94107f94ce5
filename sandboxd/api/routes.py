# SPDX-License-Identifier: Apache-2.0
"""What a route is. The table itself is api/table.py."""

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
# The rest of a path, slashes and all; with nothing there the slash before it may be missing.
_REST = "/{path}"
_REST_PATTERN = r"(?:/(?P<path>.*))?"
SMALL_BODY_BYTES = 64 << 10
LARGE_BODY_BYTES = 8 << 20


class Access(enum.Enum):
    """Who may use a route."""

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
    # In the sandbox's home; b"" is the home itself.
    path: bytes = b""

    @property
    def body(self) -> B:
        """What came, until it is dropped."""
        return self.bodies[0]

    def drop_body(self) -> None:
        """Keep it no longer: what follows may take as long as an execution."""
        self.bodies.clear()
        self.share.release()


Handler = Callable[[Call[B, Q]], Awaitable[Reply | web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route(Generic[B, Q]):
    """One method of one path, with everything a client may want to know about it.

    statuses: what success answers, with a word on each. errors: what this route can answer
    beyond what every route can. answer: None = no JSON body. streams_body: the handler reads the
    body itself, raw bytes of any length and type (api/decode.py, `body_chunks`). headers: that it
    takes beside those that every route does, with a word on each. event_data: what each
    Server-Sent Event carries.
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
        """Whether an Idempotency-Key makes a retry safe."""
        return self.method == "POST" and not self.streams_body

    @property
    def parameters(self) -> list[str]:
        """Names of the path's parameters."""
        return _PARAMETER.findall(self.path)


AnyRoute = Route[Any, Any]


def path_parameter(values: Mapping[str, str | None]) -> bytes:
    """The path in a sandbox, decoded once: `%2F` separates like `/`, so that both `//tmp` and
    `/%2Ftmp` name /tmp. Raises InvalidRequest."""
    sent = values.get("path") or ""
    return clean_path(unquote_to_bytes(sent.encode("utf-8", "surrogateescape")), "path")


def check_parameters(values: Mapping[str, str | None]) -> tuple[str, str]:
    """Sandbox and execution of a path, "" for what it has not.

    The values are as sent: a percent-encoded character is in no id and no name, so that nothing
    is decoded after it was checked. Raises SandboxNotFound and ExecutionNotFound.
    """
    sandbox, execution = values.get("sandbox") or "", values.get("execution") or ""
    if sandbox and not (is_id(sandbox) or is_name(sandbox)):
        raise SandboxNotFound(f"cannot find sandbox {sandbox[:64]!r}: not an id or a name")
    if execution and not is_id(execution):
        raise ExecutionNotFound(f"cannot find execution {execution[:64]!r}: not an id")
    return sandbox, execution
