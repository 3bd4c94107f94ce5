# SPDX-License-Identifier: Apache-2.0
"""Standard input of sandboxctl to that of an execution."""

from __future__ import annotations

from sandboxd.client import feed
from sandboxd.ctl.exits import say
from sandboxd.errors import SandboxdError


class Feed(feed.Feed):
    """Says on stderr what keeps it from passing input on."""

    def tell(self, error: SandboxdError | OSError) -> None:
        """One line."""
        say(f"cannot pass standard input on: {error}")
