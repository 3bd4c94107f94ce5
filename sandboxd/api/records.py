# SPDX-License-Identifier: Apache-2.0
"""Answers about one record. What its caller put into it may be megabytes, and is counted as of whom
the answer is for, until that is taken."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from sandboxd.api.responses import Reply
from sandboxd.api.routes import Call
from sandboxd.core.model import Execution, Sandbox
from sandboxd.engine.retention import argument_bytes, sandbox_bytes
from sandboxd.wire.answers import SandboxAnswer

# Of memory for a character: at most six bytes of JSON, and what that is made from.
_FACTOR = 8


async def sandbox_reply(call: Call[Any, Any], sandbox: Sandbox, status: int = 200) -> Reply:
    """The answer about `sandbox` as it is now."""
    await call.share.hold(_FACTOR * sandbox_bytes(sandbox))
    with call.share.long_turn():
        return Reply(status, pieces=(to_json(SandboxAnswer.of(sandbox)),))


def execution_bytes(execution: Execution) -> int:
    """Of memory for an answer about it, output left out."""
    return _FACTOR * argument_bytes(execution.command)
