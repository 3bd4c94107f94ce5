# SPDX-License-Identifier: Apache-2.0
"""Signals to sandboxctl during the wait for an execution.

The first signal goes to the program's process group, as a terminal's control-C does, and the
program may end by itself. After the grace, or at a second signal, the execution is killed.
"""

from __future__ import annotations

import signal
import time
from contextlib import suppress

from sandboxd.client.calls import RUNNING, Client, JsonObject
from sandboxd.client.routes import FINAL_WAIT_SECONDS
from sandboxd.ctl.exits import say
from sandboxd.errors import ExecutionFinished, NotFound, SandboxdError

GRACE_SECONDS = 10.0
_KILL_WAIT_SECONDS = 10.0
# Both mean that the execution ended; a sandbox of `run` is released with its execution.
_OVER = (ExecutionFinished, NotFound)


class Ending:
    """The end of an execution by signals to sandboxctl.

    `number`: the signal passed on. `execution`: set before a signal can come. `is_over`: the
    execution ended, so a missing daemon is no error.
    """

    def __init__(self, client: Client, grace_seconds: float) -> None:
        self.number: int | None = None
        self.execution: JsonObject | None = None
        self.is_over = False
        self._client = client
        self._grace_seconds = grace_seconds

    def pass_on(self, number: int) -> None:
        """Send the signal to the program and kill the execution after the grace, in a thread."""
        # Imported late: most commands need no thread.
        import threading

        self.number = number
        threading.Thread(target=self._end, args=(number,), name="ending", daemon=True).start()

    def kill(self) -> JsonObject:
        """Kill the execution, wait for the end and return the execution. Raises SandboxdError."""
        sandbox, identity = self._names()
        try:
            answer = self._client.kill_execution(sandbox, identity, {})
        except ExecutionFinished:
            return self._client.get_execution(sandbox, identity)
        if answer["status"] not in RUNNING:
            return answer
        return self._client.wait_execution(sandbox, identity, timeout_seconds=_KILL_WAIT_SECONDS)

    def _end(self, number: int) -> None:
        sandbox, identity = self._names()
        try:
            with suppress(*_OVER):
                self._client.kill_execution(sandbox, identity, {"signal": number, "group": True})
                if self._still_runs():
                    say(f"it did not end within {self._grace_seconds:g} s: it is killed")
                    self._client.kill_execution(sandbox, identity, {})
        except (SandboxdError, OSError) as exc:
            if not self.is_over:
                name = signal.Signals(number).name
                say(f"cannot end the execution after {name}: {exc} (once more: kill at once)")

    def _still_runs(self) -> bool:
        deadline = time.monotonic() + self._grace_seconds
        while True:
            left = max(0.0, deadline - time.monotonic())
            sandbox, identity = self._names()
            answer = self._client.wait_execution(
                sandbox, identity, timeout_seconds=min(left, FINAL_WAIT_SECONDS)
            )
            if answer["status"] not in RUNNING:
                return False
            if time.monotonic() >= deadline:
                return True

    def _names(self) -> tuple[str, str]:
        assert self.execution is not None
        return self.execution["sandbox_id"], self.execution["id"]
