# SPDX-License-Identifier: Apache-2.0
"""sandboxctl rm."""

from __future__ import annotations

import argparse

from sandboxd.ctl.connect import connect
from sandboxd.ctl.many import add_sandboxes, for_each


def configure(parser: argparse.ArgumentParser) -> None:
    """Add its arguments."""
    add_sandboxes(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Release sandboxes; returns once they are gone."""
    return for_each(arguments, connect(arguments).release_sandbox)
