# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests. Unknown fields are refused; null is the same as missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
    model_validator,
)

from sandboxd.core.binds import MAX_BINDS
from sandboxd.core.entries import MAX_BATCH_FILES, NewFile
from sandboxd.core.limits import LIMITS, SANDBOX_LIMITS
from sandboxd.core.model import Bind, Command, EnforcedBy, LimitChanges, TerminalSize
from sandboxd.wire import limits, payload
from sandboxd.wire import quantities as q

# Far above any request's number of fields: bounds the list of errors about unknown ones.
_MAX_FIELDS = 64
LIMIT_NAMES = tuple(limit.name for limit in LIMITS)


class Request(BaseModel):
    """The base of all bodies and queries: frozen, unknown fields refused, at most _MAX_FIELDS."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )

    @model_validator(mode="before")
    @classmethod
    def _bound_fields(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            raise ValueError("must be an object")
        if len(data) > _MAX_FIELDS:
            raise ValueError(f"has {len(data)} fields, and no request has over {_MAX_FIELDS}")
        return data


class _Limits(Request):
    """Limits asked for; a missing limit is the server's default, or unchanged in a change."""

    def changes(self, **more: Any) -> LimitChanges:
        """Return the limits as core values; more: fields beside `limits` (None = not given)."""
        given = {name: value for name, value in more.items() if value is not None}
        return LimitChanges(**{**self.model_dump(), **given})


if TYPE_CHECKING:
    LimitsBody: TypeAlias = _Limits
else:
    LimitsBody = create_model(
        "LimitsBody", __base__=_Limits, __doc__=_Limits.__doc__, **limits.body_fields()
    )


def _required(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValueError("must be a list of limits' names")
    for name in value:
        if name not in LIMIT_NAMES:
            raise ValueError(f"{name[:64]!r} is not a limit: use {', '.join(LIMIT_NAMES)}")
    return tuple(dict.fromkeys(value))


Required = Annotated[tuple[str, ...], BeforeValidator(_required)]


class BindBody(Request):
    """A path of the host to be mounted in the sandbox."""

    source: payload.Path
    target: payload.Path
    writable: q.Flag | None = None


class SandboxFields(Request):
    """Fields of a new sandbox, long-lived or for a single run."""

    name: q.Name | None = None
    limits: LimitsBody | None = None
    require: Required | None = None
    """Limits that have to be held here; missing with `require_by` = all."""
    require_by: Literal["any", "kernel"] | None = None
    isolation: Literal["auto", "none", "basic", "standard", "strict"] | None = None
    network: Literal["none", "loopback", "host"] | None = None
    rootfs: q.ImageName | None = None
    """An image of the server, in place of the host's /usr; needs isolation standard or strict."""
    binds: Annotated[list[BindBody], Field(max_length=MAX_BINDS)] | None = None
    """Paths of the host that the server's settings allow; needs the same isolation as rootfs."""
    metadata: payload.Metadata | None = None

    def decode_binds(self) -> tuple[Bind, ...]:
        """Return the binds as core values."""
        return tuple(Bind(b.source, b.target, bool(b.writable)) for b in self.binds or ())

    def required(self) -> tuple[str, ...]:
        """Return the names of limits that have to be held; of shares alone what the request has."""
        if self.require is not None:
            return self.require
        if self.require_by is None:
            return ()
        named = {} if self.limits is None else self.limits.changes().as_dict()
        return tuple(one.name for one in LIMITS if one.neutral is None or one.name in named)

    def required_holder(self) -> EnforcedBy | None:
        """Return what has to hold the required limits; None = any holder."""
        return EnforcedBy.KERNEL if self.require_by == "kernel" else None


class CreateSandbox(SandboxFields):
    """POST /v1/sandboxes."""

    env: payload.Env | None = None
    timeout_seconds: q.Seconds | None = None
    """How long the sandbox lives."""
    idle_timeout_seconds: q.Seconds | None = None

    @model_validator(mode="after")
    def _check_size(self) -> Self:
        payload.check_exec_bytes((), self.env or {})
        return self


class ChangeSandbox(Request):
    """PATCH /v1/sandboxes/{id}."""

    limits: LimitsBody | None = None
    metadata: payload.Metadata | None = None
    timeout_seconds: q.Seconds | None = None
    idle_timeout_seconds: q.Seconds | None = None
    force: q.Flag | None = None
    """Lower memory below what is used; the kernel then kills."""


class TerminalBody(Request):
    """The size of a terminal, in characters; POST .../resize."""

    rows: q.TerminalSide
    cols: q.TerminalSide

    def size(self) -> TerminalSize:
        """Return the size as a core value."""
        return TerminalSize(self.rows, self.cols)


class ExecutionFields(Request):
    """A command to run, with limits of the execution."""

    argv: payload.Argv | None = None
    command: payload.ShellCommand | None = None
    env: payload.Env | None = None
    cwd: payload.WorkingDirectory | None = None
    stdin: payload.Stdin | None = None
    stdin_base64: payload.StdinBase64 | None = None
    stdin_open: q.Flag | None = None
    """Keep standard input open: see .../stdin."""
    tty: TerminalBody | None = None
    """Run the command in a terminal: input stays open, and all output is stdout."""
    limits: LimitsBody | None = None
    timeout_seconds: q.Seconds | None = None
    max_output_bytes: q.Bytes | None = None
    kill_grace_seconds: q.GraceSeconds | None = None
    merge_output: q.Flag | None = None
    wait: q.WaitOrFlag | None = None
    """Answer at the execution's end (true, the default), at once (false), or at the end but after
    at most so many seconds, with the present state."""

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.argv is None) == (self.command is None):
            raise ValueError("must have either argv or command")
        given = ["stdin"] * (self.stdin is not None) + ["stdin_base64"] * (
            self.stdin_base64 is not None
        )
        given += ["stdin_open"] * bool(self.stdin_open or self.tty)
        if len(given) > 1:
            raise ValueError(f"must not have both {given[0]} and {given[1]} (a tty's is open)")
        for name in ("timeout_seconds", "max_output_bytes"):
            if self.limits and getattr(self, name) and getattr(self.limits, name):
                raise ValueError(f"must not have {name} twice, in limits and beside it")
        payload.check_exec_bytes(self._argv(), self.env or {})
        return self

    def _argv(self) -> tuple[str, ...]:
        return ("/bin/sh", "-c", self.command) if self.command is not None else self.argv or ()

    @property
    def wait_seconds(self) -> float | None:
        """How many seconds to wait for the end; None = without a bound."""
        if self.wait is None or isinstance(self.wait, bool):
            return 0.0 if self.wait is False else None
        return self.wait

    def decode(self) -> Command:
        """Return the command as a core value."""
        return Command(
            argv=self._argv(),
            env=self.env or {},
            cwd=self.cwd,
            stdin=self.stdin_base64 if self.stdin is None else self.stdin,
            stdin_open=bool(self.stdin_open),
            tty=self.tty.size() if self.tty else None,
            merge_output=bool(self.merge_output),
            kill_grace_seconds=self.kill_grace_seconds or 0.0,
        )

    def changes(self) -> LimitChanges:
        """Return all limits asked for, including the fields beside `limits`."""
        return (self.limits or LimitsBody()).changes(
            timeout_seconds=self.timeout_seconds, max_output_bytes=self.max_output_bytes
        )


class StartExecution(ExecutionFields):
    """POST /v1/sandboxes/{id}/executions."""


class FileToWrite(Request):
    """A file to write before the command runs; missing parent directories are made."""

    path: payload.FilePath
    """Relative to the home, or absolute as the command sees the path."""
    text: payload.Stdin | None = None
    base64: payload.StdinBase64 | None = None
    mode: q.Mode | None = None
    """Permission bits; default: 0644."""

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if (self.text is None) == (self.base64 is None):
            raise ValueError("must have either text or base64")
        return self

    def decode(self) -> NewFile:
        """Return the file as a core value."""
        return NewFile(
            self.path, (self.base64 if self.text is None else self.text) or b"", self.mode
        )


class Run(ExecutionFields, SandboxFields):
    """POST /v1/run: a sandbox for the time of a single execution."""

    limits: LimitsBody | None = None
    files: Annotated[list[FileToWrite], Field(max_length=MAX_BATCH_FILES)] | None = None
    """Files to write before the command runs; if a file cannot be written, no command runs."""
    read_files: Annotated[list[payload.FilePath], Field(max_length=MAX_BATCH_FILES)] | None = None
    """Files to read after the command's end, before the sandbox is released; needs `wait` true."""

    @model_validator(mode="after")
    def _check_waits(self) -> Self:
        if self.read_files and self.wait_seconds is not None:
            raise ValueError("must have wait: true, or not at all, where read_files is given")
        return self

    def new_files(self) -> tuple[NewFile, ...]:
        """Return the files to write before the run as core values."""
        return tuple(file.decode() for file in self.files or ())

    def split_changes(self) -> tuple[LimitChanges, LimitChanges]:
        """Return the sandbox's limits, and the limits that only executions have."""
        asked = self.changes().as_dict()
        sandbox = {name: value for name, value in asked.items() if name in SANDBOX_LIMITS}
        execution = {name: value for name, value in asked.items() if name not in SANDBOX_LIMITS}
        return LimitChanges(**sandbox), LimitChanges(**execution)


class KillExecution(Request):
    """POST .../kill: end the execution (SIGTERM first if there is a grace), or send a signal."""

    signal: q.Signal | None = None
    group: q.Flag | None = None
    """Send the signal to the main process's whole group, as a terminal does for control-C."""
    grace_seconds: q.GraceSeconds | None = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.signal is not None and self.grace_seconds is not None:
            raise ValueError("must not have both: with a signal nothing follows after a grace")
        if self.group and self.signal is None:
            raise ValueError("must have a signal for the group: without one all is killed")
        return self


class AttachOrder(Request):
    """A text message of an attached client."""

    type: Literal["resize", "close_stdin"]
    rows: q.TerminalSide | None = None
    cols: q.TerminalSide | None = None

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        has_size = self.rows is not None and self.cols is not None
        has_none = self.rows is None and self.cols is None
        if not (has_size if self.type == "resize" else has_none):
            raise ValueError("must have rows and cols to resize, and else neither")
        return self


class Nothing(Request):
    """No body, or no query."""


NOTHING = Nothing()
