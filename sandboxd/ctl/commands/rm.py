# SPDX-License-Identifier: Apache-2.0
"""sandboxctl rm."""

from __future__ import annotations

import argparse
import os

from sandboxd.ctl.connect import connect
from sandboxd.ctl.limits import add_metadata
from sandboxd.ctl.many import for_each
from sandboxd.ctl.owners import LIVE
from sandboxd.errors import InvalidRequest


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--all", "-a", action="store_true", help="all of your own")
    add_metadata(parser, "all of your own that have it")
    parser.add_argument("sandboxes", nargs="*", metavar="SANDBOX", help="id or name")


def execute(arguments: argparse.Namespace) -> int:
    """Release sandboxes; return after all are released."""
    chosen = arguments.all or arguments.metadata
    if bool(arguments.sandboxes) == bool(chosen):
        raise InvalidRequest(
            "cannot remove nothing: name sandboxes, or give --all or --metadata"
            if not chosen
            else "cannot remove sandboxes by name and by choice: leave one of them out"
        )
    client = connect(arguments)
    if chosen:
        filters = {f"metadata.{key}": value for key, value in arguments.metadata}
        found = client.list_sandboxes(state=LIVE, **filters)
        # An admin sees all owners' sandboxes; only the admin's own are meant.
        own = os.geteuid()
        arguments.sandboxes = [box["id"] for box in found if box["owner_uid"] == own]
    return for_each(arguments, client.release_sandbox)
