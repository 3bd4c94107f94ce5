# SPDX-License-Identifier: Apache-2.0
"""Output on a filling disk: the owners of new output make room.

A shim ends an execution whose output passes the free space above the floor for new sandboxes. Many
smaller outputs still fill the disk: below twice the floor, output added since the last time with
more room is removed (growth.py), or the printing execution is ended.
"""

from __future__ import annotations

import logging
from functools import partial

from sandboxd.core.model import ErrorCode
from sandboxd.engine.context import Context
from sandboxd.engine.growth import Output, Sizes, allowed_bytes, liable
from sandboxd.engine.ports.workspaces import Room
from sandboxd.engine.registry import LiveExecution, LiveSandbox

_log = logging.getLogger(__name__)
ROOM_PERIOD_SECONDS = 0.25
# Age of the sizes from which growth counts, while the disk has room.
_SIZES_SECONDS = 1.0
# Least time between two warnings.
_SAY_AGAIN_SECONDS = 3600.0


class Spools:
    """Keeps disk space free for the output of all owners."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # Sizes at the last time with room; output from before the start counts as no growth.
        self._before: Sizes | None = None
        self._is_lacking = False
        self._sizes_monotonic = 0.0
        self._said_monotonic: float | None = None

    async def pass_once(self) -> None:
        """Check the disk once and make room."""
        now = self._context.clock.monotonic()
        # Before the free space is read: later output counts as growth.
        outputs: list[Output] = []
        is_due = self._before is None or now - self._sizes_monotonic >= _SIZES_SECONDS
        if is_due or self._is_lacking:
            outputs = self._outputs()
        room = await self._context.workspaces.room()
        lacking = 2 * room.floor_bytes - room.free_bytes
        self._is_lacking = lacking > 0
        if self._before is None or (is_due and lacking <= 0):
            self._before, self._sizes_monotonic = Sizes.of(outputs), now
        if lacking > 0:
            await self._make_room(outputs or self._outputs(), self._before, room)
        else:
            self._may_say_again()

    async def _make_room(self, outputs: list[Output], before: Sizes, room: Room) -> None:
        lacking = 2 * room.floor_bytes - room.free_bytes
        allowed = partial(allowed_bytes, room.floor_bytes)
        chosen, missing = liable(outputs, before, lacking, allowed)
        known = self._context.registry.executions()
        places = {one.execution.id: (live, one) for live, one in known}
        for output in chosen:
            if output.execution_id in places:
                await self._give_up(*places[output.execution_id], output.size_bytes)
        if missing:
            self._say_once(room.free_bytes, missing)

    def _outputs(self) -> list[Output]:
        return [self._output(*one) for one in self._context.registry.executions()]

    def _output(self, live: LiveSandbox, running: LiveExecution) -> Output:
        execution = running.execution
        streams = (execution.stdout, execution.stderr)
        if not execution.is_finished:
            streams = self._context.spooled(execution)
        size = sum(stream.size_bytes for stream in streams)
        is_open = not running.collected.is_set()
        return Output(execution.id, live.sandbox.owner_uid, size, is_open)

    async def _give_up(self, live: LiveSandbox, running: LiveExecution, size: int) -> None:
        execution, owner = running.execution, live.sandbox.owner_uid
        if running.shim is not None:
            if running.kill_code is None:
                _log.warning(
                    "The disk is nearly full: ending execution %s of uid %d, whose output takes %d "
                    "bytes", execution.id, owner, size,
                )  # fmt: skip
                running.kill_code = ErrorCode.OUTPUT
                await running.shim.kill(ErrorCode.OUTPUT, grace_seconds=0.0)
            return
        if running.collected.is_set() and execution.id in live.executions:
            _log.warning(
                "The disk is nearly full: giving up execution %s of uid %d, whose output takes %d "
                "bytes", execution.id, owner, size,
            )  # fmt: skip
            await self._context.forget_execution(live, running)

    def _say_once(self, free: int, missing: int) -> None:
        if self._said_monotonic is None:
            self._said_monotonic = self._context.clock.monotonic()
            _log.warning(
                "The disk of the state directory is nearly full: %d bytes are free, and %d are "
                "lacking that are nobody's new output: delete files there, or release sandboxes",
                free,
                missing,
            )

    def _may_say_again(self) -> None:
        now, said = self._context.clock.monotonic(), self._said_monotonic
        if said is not None and now - said >= _SAY_AGAIN_SECONDS:
            self._said_monotonic = None
