# SPDX-License-Identifier: Apache-2.0
"""sandboxctl create."""

from __future__ import annotations

import argparse
from typing import Any

from sandboxd.ctl import limits
from sandboxd.ctl.connect import connect
from sandboxd.ctl.show import print_json
from sandboxd.ctl.waiting import waiting


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    limits.add_limits(parser, limits.SERVERS)
    limits.add_place(parser)
    limits.add_env(parser)
    limits.add_life(parser)
    limits.add_output_format(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Create a sandbox and print its id."""
    body: dict[str, Any] = {
        **limits.place(arguments),
        **limits.life(arguments),
        "limits": limits.limits(arguments),
        "env": dict(arguments.env),
    }
    with waiting("making a sandbox"):
        sandbox = connect(arguments).create_sandbox(body)
    if arguments.output == "json":
        print_json(sandbox)
    else:
        print(sandbox["id"])
    return 0
