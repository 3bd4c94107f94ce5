# SPDX-License-Identifier: Apache-2.0
"""sandboxctl suspend."""

from __future__ import annotations

import argparse

from sandboxd.ctl.connect import connect
from sandboxd.ctl.many import add_sandboxes, for_each


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_sandboxes(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Freeze every process in sandboxes."""
    return for_each(arguments, connect(arguments).suspend_sandbox)
