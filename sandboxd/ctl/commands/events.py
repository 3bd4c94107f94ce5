# SPDX-License-Identifier: Apache-2.0
"""sandboxctl events."""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from typing import Any

from sandboxd.client.calls import Client
from sandboxd.client.request import Request
from sandboxd.client.routes import host_events
from sandboxd.client.sse import follow_events
from sandboxd.ctl.connect import connect
from sandboxd.ctl.exits import say
from sandboxd.ctl.interrupts import Interrupts
from sandboxd.ctl.limits import add_output_format, option
from sandboxd.ctl.moment import FORMS as MOMENT_FORMS
from sandboxd.ctl.moment import moment
from sandboxd.ctl.show import printable
from sandboxd.errors import SandboxNotFound

# An id of no daemon: all kept events come after this id.
_BEFORE_ALL = "aaaaaaaaaaaa-0"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_output_format(parser)
    parser.add_argument(
        "--since", type=option(moment), metavar="TIME",
        help="begin with those that are kept from then on (the last 4,096, not over a restart); "
        f"{MOMENT_FORMS}",
    )  # fmt: skip
    parser.add_argument("sandbox", nargs="?", metavar="SANDBOX", help="id or name; default: all")


def execute(arguments: argparse.Namespace) -> int:
    """Print a line for each event until a signal; with -o json a JSON object."""
    client = connect(arguments)
    if arguments.sandbox is not None:
        _look_for(client, arguments.sandbox)
    since = arguments.since

    def request(last_id: str) -> Request:
        return host_events(last_id or (_BEFORE_ALL if since else ""))

    with Interrupts():
        for event in follow_events(client, request):
            data = json.loads(event.data)
            if since is not None and not event.id:
                # A gap before the first kept event is expected here.
                continue
            if "sandbox_id" not in data:
                # A message about the stream itself, such as a gap.
                say(f"{printable(event.name)}: {printable(str(data.get('message')))}")
            elif since is not None and datetime.fromisoformat(data["at"]) < since:
                continue
            elif arguments.sandbox in (None, data["sandbox_id"], data["sandbox_name"]):
                line = json.dumps(data) if arguments.output == "json" else describe(data)
                print(line, flush=True)
    return 0


def _look_for(client: Client, ref: str) -> None:
    """Warn about an unknown name, most often a slip; a later sandbox may have the name."""
    try:
        client.get_sandbox(ref)
    except SandboxNotFound as exc:
        say(f"{printable(exc.message)}: waiting for one")


def describe(event: dict[str, Any]) -> str:
    """Return one event as a line."""
    name = event["sandbox_name"]
    words = [event["at"], event["type"].ljust(18), event["sandbox_id"]]
    words += [f"({name})"] if name else []
    if event["execution_id"]:
        words.append(event["execution_id"])
    for key in ("status", "exit_code", "signal", "error_code", "reason"):
        if event[key] is not None:
            words.append(f"{key}={event[key]}")
    return printable(" ".join(words))
