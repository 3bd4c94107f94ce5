# SPDX-License-Identifier: Apache-2.0
"""That a host takes no new work is said wherever somebody looks at it."""

from __future__ import annotations

from sandboxd.client.calls import Client, JsonObject
from sandboxd.ctl.exits import say
from sandboxd.ctl.show import number_of


def words(host: JsonObject) -> str:
    """Of a host that drains, and how much runs; empty where it takes work."""
    if not host["draining"]:
        return ""
    running = host["executions_running"]
    verb = "runs" if running == 1 else "run"
    return f"draining: no new work, {number_of(running, 'execution')} still {verb}"


def warn(client: Client) -> None:
    """Say it on stderr, where it is so."""
    if told := words(client.host()):
        say(f"this host is {told}")
