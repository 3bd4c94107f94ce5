# SPDX-License-Identifier: Apache-2.0
"""Reports each step of a lifecycle: an event for followers, an audit line for the journal.

An execution has one line at level info, at the end; the start is logged at debug.
"""

from __future__ import annotations

import logging
import shlex
from dataclasses import dataclass, field

from sandboxd.core.logs import about, asking, one_line
from sandboxd.core.model import ErrorCode, EventType, Execution, ExecutionStatus, Sandbox
from sandboxd.engine.allowance import MOST_LINES, WINDOW_SECONDS, Allowance, LineGrant
from sandboxd.engine.events import Event, Events
from sandboxd.engine.history import History
from sandboxd.engine.ports.host import Clock

_log = logging.getLogger(__name__)
_MAX_LOGGED_CHARACTERS = 4096
_VERBS = {
    EventType.SANDBOX_CREATED: "Created",
    EventType.SANDBOX_CHANGED: "Changed",
    EventType.SANDBOX_SUSPENDED: "Suspended",
    EventType.SANDBOX_RESUMED: "Resumed",
    EventType.SANDBOX_RELEASING: "Releasing",
    EventType.SANDBOX_RELEASED: "Released",
}


@dataclass(slots=True)
class Counters:
    """Sums since the start of this daemon."""

    sandboxes_created: int = 0
    sandboxes_released: int = 0
    executions_started: int = 0
    executions_ended: dict[ExecutionStatus, int] = field(default_factory=dict)
    cpu_seconds: float = 0.0


class Lifecycle:
    """Publishes events, counts, writes audit lines (logs_arguments: with the commands)."""

    def __init__(self, clock: Clock, *, logs_arguments: bool = False) -> None:
        self._clock = clock
        self._logs_arguments = logs_arguments
        self._allowance = Allowance(clock)
        self.events = Events()
        self.counters = Counters()
        self.history = History(clock)

    def sandbox(self, kind: EventType, sandbox: Sandbox, reason: ErrorCode | None = None) -> None:
        """Report a step of a sandbox."""
        if kind is EventType.SANDBOX_CREATED:
            self.counters.sandboxes_created += 1
        elif kind is EventType.SANDBOX_RELEASED:
            self.counters.sandboxes_released += 1
        self.events.publish(self._event(kind, sandbox, reason))
        why = "" if reason is None else f" ({reason})"
        self._log(
            sandbox,
            "%s sandbox %s of uid %d%s%s", _VERBS[kind], sandbox.id, sandbox.owner_uid, why,
            asking(),
            extra=about(
                SANDBOX_ID=sandbox.id, SANDBOX_NAME=sandbox.name, OWNER_UID=sandbox.owner_uid,
                EVENT=kind, REASON=reason, OBJECT_SYSTEMD_UNIT=sandbox.unit,
            ),
        )  # fmt: skip

    def started(self, sandbox: Sandbox, execution: Execution) -> None:
        """Report the start of an execution's command."""
        self.counters.executions_started += 1
        self.history.started(sandbox.owner_uid, execution)
        kind = EventType.EXECUTION_STARTED
        self.events.publish(self._event(kind, sandbox, execution=execution))
        _log.debug(
            "Started execution %s of sandbox %s%s%s", execution.id, sandbox.id, asking(),
            self._arguments(execution), extra=_about_execution(kind, sandbox, execution),
        )  # fmt: skip

    def ended(self, sandbox: Sandbox, execution: Execution) -> None:
        """Report the end of an execution, with the verdict."""
        outcome, counters = execution.outcome, self.counters
        ended = counters.executions_ended
        ended[outcome.status] = ended.get(outcome.status, 0) + 1
        counters.cpu_seconds += execution.usage.cpu_seconds or 0.0
        self.history.ended(sandbox.owner_uid, execution)
        kind = EventType.EXECUTION_ENDED
        self.events.publish(self._event(kind, sandbox, execution=execution))
        owner = None if outcome.limit_owner is None else f"limit of the {outcome.limit_owner}"
        number = None if outcome.signal is None else f"signal {outcome.signal}"
        code = None if outcome.exit_code is None else f"exit code {outcome.exit_code}"
        facts = [
            str(fact) for fact in (outcome.error_code, owner, number, code) if fact is not None
        ]
        self._log(
            sandbox,
            "Execution %s of sandbox %s ended as %s%s%s%s", execution.id, sandbox.id,
            outcome.status, f" ({', '.join(facts)})" if facts else "", asking(),
            self._arguments(execution), extra=_about_execution(kind, sandbox, execution),
        )  # fmt: skip

    def _log(
        self, sandbox: Sandbox, text: str, *values: object, extra: dict[str, dict[str, object]]
    ) -> None:
        """Write an audit line within the owner's allowance."""
        told = self._allowance.take(sandbox.owner_uid)
        if told is not LineGrant.NO:
            _log.info(text, *values, extra=extra)
        if told is LineGrant.LAST:
            _log.warning(
                "Steps of uid %d are told no more for up to %g seconds: they are more than %d",
                sandbox.owner_uid, WINDOW_SECONDS, MOST_LINES,
                extra=about(OWNER_UID=sandbox.owner_uid),
            )  # fmt: skip

    def _arguments(self, execution: Execution) -> str:
        """Return the text for the end of an audit line; empty unless enabled."""
        if not self._logs_arguments:
            return ""
        return f": {one_line(shlex.join(execution.command.argv))[:_MAX_LOGGED_CHARACTERS]}"

    def _event(
        self,
        kind: EventType,
        sandbox: Sandbox,
        reason: ErrorCode | None = None,
        execution: Execution | None = None,
    ) -> Event:
        outcome = None if execution is None else execution.outcome
        return Event(
            type=kind,
            at=self._clock.now(),
            owner_uid=sandbox.owner_uid,
            sandbox_id=sandbox.id,
            sandbox_name=sandbox.name,
            state=sandbox.state,
            reason=reason,
            execution_id=None if execution is None else execution.id,
            status=None if outcome is None else outcome.status,
            error_code=None if outcome is None else outcome.error_code,
            exit_code=None if outcome is None else outcome.exit_code,
            signal=None if outcome is None else outcome.signal,
        )


def _about_execution(
    kind: EventType, sandbox: Sandbox, execution: Execution
) -> dict[str, dict[str, object]]:
    units = [unit for unit in (sandbox.unit, execution.unit) if unit is not None]
    outcome = execution.outcome
    return about(
        SANDBOX_ID=sandbox.id,
        SANDBOX_NAME=sandbox.name,
        EXECUTION_ID=execution.id,
        OWNER_UID=sandbox.owner_uid,
        REQUEST_ID=execution.request_id,
        EVENT=kind,
        VERDICT=outcome.status if outcome.status.is_final else None,
        ERROR_CODE=outcome.error_code,
        LIMIT_OWNER=outcome.limit_owner,
        EXIT_CODE=outcome.exit_code,
        OBJECT_SYSTEMD_UNIT=units,
    )
