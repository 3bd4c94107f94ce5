# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from sandboxd.cgroup import host
from sandboxd.engine.ports.launch import Shim
from sandboxd.schemes import scopes
from tests.unit.schemes.fake_manager import FakeManager
from tests.unit.schemes.made import LiveShim, MortalShim


@pytest.fixture
def shim() -> Iterator[Shim]:
    live = LiveShim(os.getpid())
    yield cast("Shim", live)
    os.close(live.pidfd)


@pytest.fixture
def mortal() -> Iterator[MortalShim]:
    shim = MortalShim(subprocess.Popen(["sleep", "600"]))
    yield shim
    shim.end()
    os.close(shim.pidfd)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeManager:
    (tmp_path / "cgroup.controllers").write_text("cpu io memory pids\n")
    monkeypatch.setattr(host, "hierarchy", lambda root: host.Hierarchy.UNIFIED)
    monkeypatch.setattr(scopes, "is_in", lambda pid, unit: True)
    monkeypatch.setattr(scopes, "_COLLECT_SECONDS", 0.01)
    monkeypatch.setattr(scopes, "_FILTER_SECONDS", 0.05)
    return FakeManager(tmp_path)
