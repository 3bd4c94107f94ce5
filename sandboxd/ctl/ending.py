# SPDX-License-Identifier: Apache-2.0
"""What signals to sandboxctl do to the execution that it waits for.

The first one is passed on to the program's process group, as a terminal's control-C is, and the
program may end by itself; after the grace it is killed, as it is at once by a second one.
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
# Both mean that there is nothing left to end; a sandbox of `run` goes with its execution.
_OVER = (ExecutionFinished, NotFound)


class Ending:
    """`number`: the signal that was passed on. `execution`: set before a signal may come.
    `is_over`: it has ended, and a daemon that is gone by now is no trouble."""

    def __init__(self, client: Client, grace_seconds: float) -> None:
        self.number: int | None = None
        self.execution: JsonObject | None = None
        self.is_over = False
        self._client = client
        self._grace_seconds = grace_seconds

    def pass_on(self, number: int) -> None:
        """Send the signal inside, and see to it that the execution ends; does not wait for that.

        In a thread, since what the program says to it is still to be printed.
        """
        # Not among what every command loads.
        import threading

        self.number = number
        threading.Thread(target=self._end, args=(number,), name="ending", daemon=True).start()

    def kill(self) -> JsonObject:
        """The execution after its end. Raises SandboxdError."""
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
