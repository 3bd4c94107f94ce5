# SPDX-License-Identifier: Apache-2.0
"""Output on a host whose disk gets full: whoever adds to it makes room, and nobody else.

A shim ends an execution whose output is more than what it leaves free above the floor below which
there are no new sandboxes. Many that are smaller still fill the disk: below twice the floor the
output that was added since there was more goes (growth.py), be it of what runs and prints.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from sandboxd.core.model import ErrorCode
from sandboxd.engine.context import Context
from sandboxd.engine.growth import Output, Sizes, allowed_bytes, liable
from sandboxd.engine.ports.workspaces import Room
from sandboxd.engine.registry import LiveExecution, LiveSandbox

_log = logging.getLogger(__name__)
ROOM_PERIOD_SECONDS = 0.25
# While there is room: so old may be what growth is counted from.
_SIZES_SECONDS = 1.0
# However often the disk gets full and has room again.
_SAY_AGAIN_SECONDS = 3600.0


class Spools:
    """Keeps room for everybody's output."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # When there was room; what a daemon finds at its start counts for nobody's growth.
        self._before: Sizes | None = None
        self._is_lacking = False
        self._sizes_monotonic = 0.0
        self._said_monotonic: float | None = None

    async def pass_once(self) -> None:
        """One look at the disk, and what has to be done about it."""
        now = self._context.clock.monotonic()
        # Before the look at the disk: what comes in between is growth.
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
        chosen, missing = liable(outputs, before, lacking, allowed_bytes(room.floor_bytes))
        places = {one.execution.id: (live, one) for live, one in self._executions()}
        for output in chosen:
            if output.execution_id in places:
                await self._give_up(*places[output.execution_id], output.size_bytes)
        if missing:
            self._say_once(room.free_bytes, missing)

    def _executions(self) -> Iterator[tuple[LiveSandbox, LiveExecution]]:
        for live in self._context.registry:
            for running in live.executions.values():
                yield live, running

    def _outputs(self) -> list[Output]:
        return [self._output(live, running) for live, running in self._executions()]

    def _output(self, live: LiveSandbox, running: LiveExecution) -> Output:
        execution = running.execution
        if execution.is_finished:
            size = execution.stdout.size_bytes + execution.stderr.size_bytes
        else:
            place = (live.sandbox.id, execution.id)
            of_stream = self._context.workspaces.output_size
            size = of_stream(*place, "stdout") + of_stream(*place, "stderr")
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
        if running.collected.is_set() and live.executions.pop(execution.id, None) is not None:
            _log.warning(
                "The disk is nearly full: giving up execution %s of uid %d, whose output takes %d "
                "bytes", execution.id, owner, size,
            )  # fmt: skip
            live.has_pruned = True
            await self._context.workspaces.remove_execution(live.sandbox.id, execution.id)

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
