# SPDX-License-Identifier: Apache-2.0
"""Makers of fixtures that test files have in common, each file with settings of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import pytest

from tests.harness import Daemon, running_daemon


def daemon_fixture(
    opened: Callable[..., AbstractContextManager[Daemon]] = running_daemon,
    *,
    scope: Literal["function", "module"] = "module",
    needs: Sequence[str] = (),
    is_open_to_all: bool = False,
    **options: Any,
) -> object:
    """Return a fixture of one daemon for a module, or for each test; it is `opened(**options)`.

        daemon = daemon_fixture(SANDBOX_CGROUP_MODE="off")

    needs: names of fixtures that come before, such as "requires_systemd". is_open_to_all: every
    uid of the host may connect.
    """

    @pytest.fixture(scope=scope)
    def daemon(request: pytest.FixtureRequest) -> Iterator[Daemon]:
        for name in needs:
            request.getfixturevalue(name)
        with opened(**options) as running:
            if is_open_to_all:
                running.open_to_all()
            yield running

    return daemon
