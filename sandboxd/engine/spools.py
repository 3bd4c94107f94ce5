# SPDX-License-Identifier: Apache-2.0
"""Output on a host whose disk gets full: that of whoever has most goes, not that of neighbours.

A shim ends an execution whose output is more than what it leaves free above the floor below which
there are no new sandboxes. Many that are smaller still fill the disk: here results of the greediest
owners are given up, and then what runs and prints, until twice the floor is free.
"""

from __future__ import annotations

import logging
from collections import defaultdict

from sandboxd.core.model import ErrorCode
from sandboxd.engine.context import Context
from sandboxd.engine.registry import LiveExecution, LiveSandbox
from sandboxd.engine.retention import excess

_log = logging.getLogger(__name__)
# Who has no more is nobody's trouble.
MODEST_BYTES = 64 << 20
Entry = tuple[LiveSandbox, LiveExecution, int]


class Spools:
    """Keeps room for everybody's output."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def pass_once(self) -> None:
        """One look at the disk, and what has to be done about it."""
        room = await self._context.workspaces.room()
        lacking = 2 * room.floor_bytes - room.free_bytes
        if lacking <= 0:
            return
        entries = self._of_greedy_owners()
        bound = max(0, sum(size for _, _, size in entries) - lacking)
        for live, running, size in excess(
            entries,
            bound,
            owner=lambda entry: entry[0].sandbox.owner_uid,
            size=lambda entry: entry[2],
            since=lambda entry: entry[1].execution.finished_monotonic,
        ):
            await self._give_up(live, running, size)

    def _of_greedy_owners(self) -> list[Entry]:
        entries: dict[int, list[Entry]] = defaultdict(list)
        for live in self._context.registry:
            for running in live.executions.values():
                if running.collected.is_set() or running.shim is not None:
                    size = self._size(live, running)
                    entries[live.sandbox.owner_uid].append((live, running, size))
        return [
            entry
            for those in entries.values()
            if sum(size for _, _, size in those) > MODEST_BYTES
            for entry in those
        ]

    def _size(self, live: LiveSandbox, running: LiveExecution) -> int:
        execution = running.execution
        if execution.is_finished:
            return execution.stdout.size_bytes + execution.stderr.size_bytes
        size = self._context.workspaces.output_size
        place = (live.sandbox.id, execution.id)
        return size(*place, "stdout") + size(*place, "stderr")

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
