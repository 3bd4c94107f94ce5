# SPDX-License-Identifier: Apache-2.0
"""Answers: plain numbers, with the unit in the field's name; times in RFC 3339, UTC."""

from __future__ import annotations

import base64
import codecs
from collections.abc import Generator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    create_model,
    model_serializer,
)

from sandboxd.core.model import (
    ErrorCode,
    Execution,
    ExecutionStatus,
    Isolation,
    LimitOwner,
    Network,
    OutputSummary,
    Ownership,
    SandboxState,
    SchemeName,
)
from sandboxd.wire import limits

INLINE_BYTES = 1 << 20
# Encoded in less than a millisecond; a multiple of three, so that base64 of steps can be joined.
_STEP_BYTES = 48 << 10


class Answer(BaseModel):
    """The base of all answers: frozen, with no unknown fields."""

    model_config = ConfigDict(frozen=True, from_attributes=True, extra="forbid")


if TYPE_CHECKING:
    LimitsAnswer: TypeAlias = Answer
else:
    LimitsAnswer = create_model(
        "LimitsAnswer",
        __base__=Answer,
        __doc__="The limits in force; `cpu_seconds` null = no such limit.",
        **limits.answer_fields(),
    )


class EnforcementAnswer(Answer):
    """What holds a limit: `kernel`, `supervisor` or `none`; `precision` is the supervisor's."""

    by: str
    detail: str
    precision: str | None


class UsageAnswer(Answer):
    """The resources an execution used; null where this host cannot measure."""

    wall_seconds: float | None
    cpu_seconds: float | None
    cpu_user_seconds: float | None
    cpu_system_seconds: float | None
    cpu_throttled_seconds: float | None
    memory_peak_bytes: int | None
    pids_peak: int | None
    io_read_bytes: int | None
    io_written_bytes: int | None
    oom_kills: int | None
    pids_denied: int | None


class BindAnswer(Answer):
    """A path of the host that a sandbox sees."""

    source: str
    target: str
    writable: bool
    ownership: Ownership | None
    ownership_detail: str


class SandboxAnswer(Answer):
    """A sandbox."""

    id: str
    name: str | None
    state: SandboxState
    isolation: Isolation
    network: Network
    rootfs: str | None
    binds: list[BindAnswer]
    scheme: SchemeName
    limits: LimitsAnswer
    enforcement: dict[str, EnforcementAnswer]
    env: dict[str, str]
    metadata: dict[str, str]
    owner_uid: int
    unit: str | None
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime


class SandboxList(Answer):
    """A page of sandboxes, oldest first; `next_cursor` null = the last page."""

    sandboxes: list[SandboxAnswer]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class Inline:
    """The first bytes of a stream, as text and, where text loses bytes, as base64."""

    text: str
    base64: str | None
    size_bytes: int
    is_cut: bool

    @classmethod
    def steps(cls, data: bytes, summary: OutputSummary) -> Generator[None, None, Inline]:
        """Encode at most INLINE_BYTES of a stream's first bytes, cut between characters.

        data: INLINE_BYTES + 1 bytes of the stream, or all of a shorter stream. The generator yields
        between steps, so that the event loop can run, and returns the Inline.
        """
        size = max(len(data), summary.size_bytes)
        kept = memoryview(data)[:INLINE_BYTES]
        is_cut = size > len(kept)
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        texts, same_bytes, is_lossy = [], 0, False
        for begin in range(0, len(kept), _STEP_BYTES):
            end = begin + _STEP_BYTES
            text = decoder.decode(kept[begin:end], final=end >= len(kept) and not is_cut)
            encoded = text.encode()
            is_lossy = is_lossy or kept[same_bytes : same_bytes + len(encoded)] != encoded
            same_bytes += len(encoded)
            texts.append(text)
            yield
        if is_cut:
            # The decoder holds back a UTF-8 sequence only where the cut broke the sequence.
            kept = kept[: len(kept) - len(decoder.getstate()[0])]
        if not (is_lossy or same_bytes != len(kept)):
            return cls("".join(texts), None, size, is_cut)
        encodings = []
        for begin in range(0, len(kept), _STEP_BYTES):
            encodings.append(base64.b64encode(kept[begin : begin + _STEP_BYTES]).decode("ascii"))
            yield
        return cls("".join(texts), "".join(encodings), size, is_cut)


class ExecutionAnswer(Answer):
    """An execution. Lists carry no output; single answers carry the first MiB of each stream."""

    id: str
    sandbox_id: str
    status: ExecutionStatus
    error_code: ErrorCode | None
    limit_owner: LimitOwner | None
    exit_code: int | None
    signal: int | None
    argv: list[str]
    cwd: str | None
    tty: bool
    stdin_open: bool
    stdout: str | None
    stderr: str | None
    # Present only where the text lost bytes, see _leave_out_base64.
    stdout_base64: str | None = None
    stderr_base64: str | None = None
    stdout_bytes: int
    stderr_bytes: int
    stdout_truncated: bool
    stderr_truncated: bool
    stdout_inline_truncated: bool
    stderr_inline_truncated: bool
    leftovers_killed: int
    unkillable: bool
    failure: str | None
    limits: LimitsAnswer
    enforcement: dict[str, EnforcementAnswer]
    usage: UsageAnswer
    unit: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @model_serializer(mode="wrap")
    def _leave_out_base64(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        # `files` is a field of RunAnswer.
        for name in ("stdout_base64", "stderr_base64", "files"):
            if fields.get(name) is None:
                fields.pop(name, None)
        return fields

    @classmethod
    def of(
        cls, execution: Execution, stdout: Inline | None, stderr: Inline | None
    ) -> ExecutionAnswer:
        """Return the answer about `execution` in its present state; streams are None in lists."""
        outcome = execution.outcome
        return cls(
            id=execution.id,
            sandbox_id=execution.sandbox_id,
            status=outcome.status,
            error_code=outcome.error_code,
            limit_owner=outcome.limit_owner,
            exit_code=outcome.exit_code,
            signal=outcome.signal,
            argv=list(execution.command.argv),
            cwd=execution.command.cwd,
            tty=execution.command.tty is not None,
            stdin_open=execution.command.stdin_open or execution.command.tty is not None,
            **_stream("stdout", stdout, execution.stdout),
            **_stream("stderr", stderr, execution.stderr),
            leftovers_killed=execution.leftovers_killed,
            unkillable=execution.unkillable,
            failure=execution.failure,
            limits=LimitsAnswer.model_validate(execution.limits),
            enforcement={
                name: EnforcementAnswer.model_validate(held)
                for name, held in execution.enforcement.items()
            },
            usage=UsageAnswer.model_validate(execution.usage),
            unit=execution.unit,
            created_at=execution.created_at,
            started_at=execution.started_at,
            finished_at=execution.finished_at,
        )


class InputAnswer(Answer):
    """Input that a command can no longer miss, in bytes."""

    written_bytes: int


class OutputEvent(Answer):
    """A piece of a stream, cut between characters.

    `base64` is present where text loses bytes, `at` where times were asked for and are known.
    """

    offset_bytes: int
    size_bytes: int
    text: str
    base64: str | None = None
    at: datetime | None = None

    @classmethod
    def of(cls, offset_bytes: int, data: bytes, at: datetime | None = None) -> OutputEvent:
        """Return the event about `data`, which begins at `offset_bytes` and was printed `at`."""
        text = data.decode("utf-8", "replace")
        encoded = None if text.encode() == data else base64.b64encode(data).decode("ascii")
        return cls(
            offset_bytes=offset_bytes, size_bytes=len(data), text=text, base64=encoded, at=at
        )


class ExecutionList(Answer):
    """A page of executions, oldest first; `next_cursor` null = the last page."""

    executions: list[ExecutionAnswer]
    next_cursor: str | None


def _stream(name: str, inline: Inline | None, summary: OutputSummary) -> dict[str, Any]:
    size = summary.size_bytes if inline is None else inline.size_bytes
    return {
        name: None if inline is None else inline.text,
        f"{name}_base64": None if inline is None else inline.base64,
        f"{name}_bytes": size,
        f"{name}_truncated": summary.truncated,
        f"{name}_inline_truncated": size > 0 if inline is None else inline.is_cut,
    }
