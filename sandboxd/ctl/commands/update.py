# SPDX-License-Identifier: Apache-2.0
"""sandboxctl update."""

from __future__ import annotations

import argparse
from typing import Any

from sandboxd.ctl import limits
from sandboxd.ctl.connect import connect
from sandboxd.ctl.show import print_json
from sandboxd.ctl.waiting import waiting
from sandboxd.errors import InvalidRequest


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    limits.add_limits(parser, limits.SAME)
    limits.add_life(parser)
    limits.add_metadata(parser)
    parser.add_argument(
        "--force", action="store_true", help="lower memory below what is used: the kernel kills"
    )
    limits.add_output_format(parser)
    parser.add_argument("sandbox", metavar="SANDBOX", help="id or name")


def execute(arguments: argparse.Namespace) -> int:
    """Change a sandbox's limits, running executions included."""
    body: dict[str, Any] = {**limits.life(arguments), "limits": limits.limits(arguments)}
    if arguments.metadata:
        body["metadata"] = dict(arguments.metadata)
    if arguments.force:
        body["force"] = True
    if arguments.force and "memory_bytes" not in body["limits"]:
        raise InvalidRequest("cannot force nothing: --force needs --memory")
    if body == {"limits": {}}:
        raise InvalidRequest(
            "cannot update nothing: name what is to change", hint="sandboxctl update --help"
        )
    with waiting("changing the sandbox"):
        sandbox = connect(arguments).change_sandbox(arguments.sandbox, body)
    if arguments.output == "json":
        print_json(sandbox)
    return 0
