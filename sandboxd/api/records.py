# SPDX-License-Identifier: Apache-2.0
"""Answers about one record, which may hold megabytes given by the sandbox's owner.

The bytes of an answer count in the share of the asking caller until the client has the answer.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import to_json

from sandboxd.api.responses import Reply
from sandboxd.api.routes import Call
from sandboxd.core.model import Execution, Sandbox
from sandboxd.engine.retention import argument_bytes, sandbox_bytes
from sandboxd.wire.answers import SandboxAnswer

# Memory per character: at most six bytes of JSON, and the source of the JSON.
_FACTOR = 8


async def sandbox_reply(call: Call[Any, Any], sandbox: Sandbox, status: int = 200) -> Reply:
    """Return the answer about `sandbox` in its present state."""
    await call.share.hold(_FACTOR * sandbox_bytes(sandbox))
    with call.share.long_turn():
        return Reply(status, pieces=(to_json(SandboxAnswer.model_validate(sandbox)),))


def execution_bytes(execution: Execution) -> int:
    """Return the memory in bytes for an answer about `execution` without output."""
    return _FACTOR * argument_bytes(execution.command)
