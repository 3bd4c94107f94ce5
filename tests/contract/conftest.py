# SPDX-License-Identifier: Apache-2.0
"""One daemon for each scheme this host can give, with each of which every test here runs, and one
over the fakes of the engine's ports."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.contract.caller import FIRST_UID, SECOND_UID, CallerOf, caller
from tests.contract.probes import has_unified_systemd
from tests.contract.selection import FAKES, MODES, left_out, takes_everything
from tests.harness import Daemon, running_daemon

BACKENDS = [*(name for name in MODES if name == "rlimit" or has_unified_systemd()), FAKES]
# Small, so that many sandboxes fit into a small host beside each other.
MEMORY_BYTES = 192 << 20


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what no host could run, and what runs elsewhere: a skip would say nothing."""
    dropped = left_out(items, everything=takes_everything(config))
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in set(dropped)]


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """A scheme, or the fakes."""
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def scheme(backend: str) -> str:
    """The scheme that holds the sandboxes, or that the fakes stand for."""
    return "systemd" if backend == FAKES else backend


@pytest.fixture(scope="session")
def daemon(backend: str, scheme: str, nothing_left_behind: None) -> Iterator[Daemon]:
    """A running daemon, open to every uid of the host.

    nothing_left_behind: pytest before 8 would look for children before the daemon has ended, since
    it orders the ends of fixtures by their last use.
    """
    settings = {
        "SANDBOX_CGROUP_MODE": MODES[scheme],
        "SANDBOX_MEMORY_LIMIT_BYTES": str(MEMORY_BYTES),
    }
    program = "tests.contract.faked" if backend == FAKES else "sandboxd"
    with running_daemon(program, **settings) as running:
        running.open_to_all()
        yield running


@pytest.fixture(scope="module")
def first(daemon: Daemon, requires_root: None) -> Iterator[CallerOf]:
    """A caller that is not root."""
    with caller(daemon, FIRST_UID) as running:
        yield running


@pytest.fixture(scope="module")
def second(daemon: Daemon, requires_root: None) -> Iterator[CallerOf]:
    """Another one."""
    with caller(daemon, SECOND_UID) as running:
        yield running


Create = Callable[..., Any]


@pytest.fixture
def create(daemon: Daemon) -> Iterator[Create]:
    """A function that makes a sandbox for this test, released at its end."""
    with contextlib.ExitStack() as cleanup:

        def make(**body: Any) -> Any:
            sandbox = daemon.create(**body)
            cleanup.callback(daemon.release, sandbox["id"])
            return sandbox

        yield make


@pytest.fixture
def sandbox(create: Create) -> Any:
    """A new sandbox with the default limits."""
    return create()
