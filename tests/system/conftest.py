# SPDX-License-Identifier: Apache-2.0
"""One daemon on the real systemd for the whole session, and a check that nothing of it is left."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness import Daemon, running_daemon
from tests.system import host


@pytest.fixture(scope="session")
def daemon(requires_systemd: None) -> Iterator[Daemon]:
    """A daemon that must take the systemd scheme."""
    before = host.sandboxd_units()
    with running_daemon(SANDBOX_CGROUP_MODE="required") as daemon:
        yield daemon
    assert host.sandboxd_units() == before
    failed = subprocess.run(
        ["systemctl", "--failed", "--plain", "--no-legend"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "sandboxd" not in failed.stdout


@pytest.fixture
def sandbox(daemon: Daemon, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A sandbox; `@pytest.mark.parametrize("sandbox", [limits], indirect=True)` sets its limits."""
    limits = getattr(request, "param", {})
    made = daemon.create(limits={"memory_bytes": "256M", **limits})
    yield made
    daemon.release(made["id"])
