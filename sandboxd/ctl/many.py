# SPDX-License-Identifier: Apache-2.0
"""Actions on several sandboxes: all are tried, and the first refusal gives the exit code."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from sandboxd.client.calls import socket_path
from sandboxd.ctl import exits, owners
from sandboxd.ctl.show import printable
from sandboxd.ctl.waiting import waiting
from sandboxd.errors import SandboxdError, SandboxNotFound


def add_sandboxes(parser: argparse.ArgumentParser) -> None:
    """Add the argument for one or more sandboxes."""
    parser.add_argument("sandboxes", nargs="+", metavar="SANDBOX", help="id or name")


def for_each(arguments: argparse.Namespace, act: Callable[[str], object]) -> int:
    """Call `act` with each sandbox; return the exit code."""
    codes, done, refused = [], [], []
    for ref in arguments.sandboxes:
        try:
            with waiting(f"waiting for sandbox {printable(ref)}"):
                act(ref)
        except SandboxdError as exc:
            if isinstance(exc, SandboxNotFound):
                owners.explain(exc, socket_path(arguments.socket), ref)
            codes.append(exits.report(exc))
            refused.append(printable(ref))
        else:
            done.append(printable(ref))
    if done and refused:
        exits.say(f"done with {', '.join(done)}; not with {', '.join(refused)}")
    return codes[0] if codes else 0
