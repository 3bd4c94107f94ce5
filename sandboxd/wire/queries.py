# SPDX-License-Identifier: Apache-2.0
"""Queries of requests. Unknown fields are refused, as in bodies."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from sandboxd.core.model import Execution, ExecutionStatus, Sandbox, SandboxState
from sandboxd.wire import payload
from sandboxd.wire import quantities as q
from sandboxd.wire.requests import Request

MAX_OFFSET = 1 << 62
MAX_PAGE = 1000


def whole_number(minimum: int, maximum: int) -> BeforeValidator:
    """Return a validator for decimal digits from `minimum` to `maximum`."""

    def check(value: object) -> int:
        if not isinstance(value, str) or not value.isascii() or not value.isdigit():
            raise ValueError("must be a whole number")
        if len(value) > 20 or not minimum <= int(value) <= maximum:
            raise ValueError(f"must be at least {minimum} and at most {maximum}")
        return int(value)

    return BeforeValidator(check)


def _truth(value: object) -> bool:
    if value not in ("true", "false", "1", "0"):
        raise ValueError("must be true or false")
    return value in ("true", "1")


def _moment(value: object) -> datetime:
    """Parse an RFC 3339 time with a zone. Raises ValueError."""
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None or found.tzinfo is None or not 1970 < found.year < 9999:
        raise ValueError("must be a time such as 2026-01-02T03:04:05Z")
    return found


Switch = Annotated[bool, BeforeValidator(_truth)]
Moment = Annotated[datetime, BeforeValidator(_moment)]


class WaitQuery(Request):
    """GET .../executions/{eid}."""

    wait: q.WaitSeconds | None = None
    """Answer at the end of the execution, or after this many seconds with the present state."""


class MetricsQuery(Request):
    """GET /v1/sandboxes/{id}/metrics."""

    by_execution: Switch = False
    """Add the usage of each running execution."""


class OutputQuery(Request):
    """GET .../output."""

    stream: Literal["stdout", "stderr"] = "stdout"
    offset: Annotated[int, whole_number(0, MAX_OFFSET)] = 0
    follow: Switch = False
    """Go on with what is printed later, to the end of the execution."""
    since: Moment | None = None
    """Only what was printed then or later; a time to come counts as now."""


class ExecutionEventsQuery(Request):
    """GET .../events of an execution."""

    follow: Switch = True
    """Go on with what is printed later, to the end of the execution."""
    since: Moment | None = None
    """Only what was printed then or later; a time to come counts as now."""
    timestamps: Switch = False
    """With each piece of output, when it came."""


def _offset_or_end(value: object) -> int | None:
    if value == "end":
        return None
    if not isinstance(value, str) or not value.isascii() or not value.isdigit():
        raise ValueError("must be a whole number, or end")
    if len(value) > 20 or int(value) > MAX_OFFSET:
        raise ValueError(f"must be at most {MAX_OFFSET}")
    return int(value)


_OffsetOrEnd = Annotated[
    int | None,
    BeforeValidator(_offset_or_end),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 0, "maximum": MAX_OFFSET}, {"const": "end"}]}
    ),
]


class AttachQuery(Request):
    """GET .../attach: the first byte of each stream to send; `end` = output from now on only."""

    stdout_offset: _OffsetOrEnd = 0
    stderr_offset: _OffsetOrEnd = 0

    def offsets(self, ends: Mapping[str, int]) -> dict[Literal["stdout", "stderr"], int]:
        """Return the first byte to send of each stream; ends: the present sizes in bytes."""
        stdout, stderr = self.stdout_offset, self.stderr_offset
        return {
            "stdout": ends["stdout"] if stdout is None else stdout,
            "stderr": ends["stderr"] if stderr is None else stderr,
        }


class PageQuery(Request):
    """The query parameters of all lists."""

    limit: Annotated[int, whole_number(1, MAX_PAGE), Field(description="entries in one answer")] = (
        100
    )
    cursor: Annotated[
        str, Field(max_length=256, description="`next_cursor` of the page before")
    ] | (None) = None


def several(kind: type[StrEnum]) -> tuple[BeforeValidator, WithJsonSchema]:
    """Return validator and schema for values of `kind` with commas between."""
    names = [value.value for value in kind]

    def check(value: object) -> frozenset[StrEnum]:
        given = value.split(",") if isinstance(value, str) else []
        if not given or not set(given) <= set(names):
            raise ValueError(f"must be of {', '.join(names)}, with commas between")
        return frozenset(map(kind, given))

    one = "|".join(names)
    return BeforeValidator(check), WithJsonSchema(
        {"type": "string", "pattern": f"^({one})(,({one}))*$", "examples": names[:1]}
    )


class SandboxFilters(PageQuery):
    """Filters for sandboxes in a list."""

    name: q.Name | None = None
    metadata: payload.Metadata | None = None
    """Given as metadata.KEY=VALUE, once for each key; a sandbox has to have all pairs."""

    @model_validator(mode="before")
    @classmethod
    def _gather_metadata(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        prefix = "metadata."
        wanted = {key[len(prefix) :]: data[key] for key in data if key.startswith(prefix)}
        if not wanted:
            return data
        rest = {key: value for key, value in data.items() if not key.startswith(prefix)}
        return {**rest, "metadata": wanted}

    def fits(self, sandbox: Sandbox) -> bool:
        """Return whether `sandbox` passes all filters."""
        wanted = (self.metadata or {}).items()
        return self.name in (None, sandbox.name) and wanted <= sandbox.metadata.items()


class SandboxesQuery(SandboxFilters):
    """GET /v1/sandboxes."""

    state: Annotated[frozenset[SandboxState], *several(SandboxState)] | None = None
    """One, or several with commas between."""

    def fits(self, sandbox: Sandbox) -> bool:
        return (self.state is None or sandbox.state in self.state) and super().fits(sandbox)


class ExecutionsQuery(SandboxFilters):
    """GET /v1/executions and GET .../executions: `name` and `metadata` are the sandbox's."""

    status: Annotated[frozenset[ExecutionStatus], *several(ExecutionStatus)] | None = None
    """One, or several with commas between."""
    ended_after: Moment | None = None
    """Only executions that ended after this RFC 3339 time."""

    def fits_execution(self, execution: Execution) -> bool:
        """Return whether `execution` passes the filters, apart from the sandbox's filters."""
        if self.status is not None and execution.outcome.status not in self.status:
            return False
        if self.ended_after is None:
            return True
        return execution.finished_at is not None and execution.finished_at > self.ended_after
