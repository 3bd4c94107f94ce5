# SPDX-License-Identifier: Apache-2.0
"""sandboxctl undrain."""

from __future__ import annotations

import argparse

from sandboxd.ctl.connect import connect


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments: none."""


def execute(arguments: argparse.Namespace) -> int:
    """Have the host accept work again."""
    connect(arguments).set_draining(draining=False)
    return 0
