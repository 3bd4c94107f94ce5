# SPDX-License-Identifier: Apache-2.0
"""Notes that the host drains, for all commands that show the host's state."""

from __future__ import annotations

from sandboxd.client.calls import Client, JsonObject
from sandboxd.ctl.exits import say
from sandboxd.ctl.show import number_of


def words(host: JsonObject) -> str:
    """Return the note for a draining host, with the number of executions; "" for other hosts."""
    if not host["draining"]:
        return ""
    running = host["executions_running"]
    verb = "runs" if running == 1 else "run"
    return f"draining: no new work, {number_of(running, 'execution')} still {verb}"


def warn(client: Client) -> None:
    """Print the note on stderr if the host drains."""
    if told := words(client.host()):
        say(f"this host is {told}")
