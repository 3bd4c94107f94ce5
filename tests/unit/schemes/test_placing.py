# SPDX-License-Identifier: Apache-2.0
"""A scope is started around a live process, with its limits in force, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from sandboxd.engine.ports.launch import Shim
from sandboxd.errors import BusUnavailable, LimitNotApplied, SchemeError
from sandboxd.schemes import scopes
from tests.unit.schemes.fake_manager import FakeManager
from tests.unit.schemes.made import ONE, MortalShim, execution, opened, sandbox


async def test_execution_without_a_limit_in_force_is_not_placed(
    manager: FakeManager, tmp_path: Path, shim: Shim
) -> None:
    scheme = await opened(manager, tmp_path)
    box = sandbox()
    await scheme.create_sandbox(box)
    await scheme.place(box, execution("ffffffffffff"), shim)
    manager.ignore.add("MemoryMax")
    with pytest.raises(LimitNotApplied, match=r"memory\.max says 'max'"):
        await scheme.place(box, execution(), shim)
    assert scheme.execution_unit(ONE, "eeeeeeeeeeee") not in manager.units
    assert manager.text(scheme.sandbox_unit(ONE), "pids.max") == "21"


async def test_systemd_is_not_asked_to_place_a_shim_that_ended(
    manager: FakeManager, tmp_path: Path, mortal: MortalShim
) -> None:
    # Before systemd 255 a scope takes numbers of processes, and this one may be another's by now.
    manager.version_number = 252
    scheme = await opened(manager, tmp_path)
    box, run = sandbox(), execution()
    await scheme.create_sandbox(box)
    mortal.end()
    with pytest.raises(SchemeError, match="its shim ended"):
        await scheme.place(box, run, cast("Shim", mortal))
    assert ("start", scheme.execution_unit(ONE, run.id)) not in manager.log


def after_start(
    manager: FakeManager, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]
) -> None:
    """Have `then` happen when systemd has started a unit and nobody knows yet."""
    start = manager.start_transient

    async def start_and_more(unit: str, *arguments: Any, **more: Any) -> None:
        await start(unit, *arguments, **more)
        then()

    monkeypatch.setattr(manager, "start_transient", start_and_more)


async def test_a_shim_that_ends_while_it_is_placed_leaves_no_scope(
    manager: FakeManager, tmp_path: Path, mortal: MortalShim, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = await opened(manager, tmp_path)
    box, run = sandbox(), execution()
    await scheme.create_sandbox(box)
    after_start(manager, monkeypatch, mortal.end)
    with pytest.raises(SchemeError, match="its shim ended"):
        await scheme.place(box, run, cast("Shim", mortal))
    scope = scheme.execution_unit(ONE, run.id)
    assert ("start", scope) in manager.log
    assert scope not in manager.units


async def test_lost_answer_of_a_start_that_happened(
    manager: FakeManager, tmp_path: Path, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = await opened(manager, tmp_path)
    box, run = sandbox(), execution()
    await scheme.create_sandbox(box)

    def lose() -> None:
        raise BusUnavailable("lost")

    after_start(manager, monkeypatch, lose)
    await scheme.place(box, run, shim)
    assert manager.log[-1] == ("start", scheme.execution_unit(ONE, run.id))


async def test_lost_start_is_tried_again(
    manager: FakeManager, tmp_path: Path, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = await opened(manager, tmp_path)
    box, run = sandbox(), execution()
    await scheme.create_sandbox(box)
    scope = scheme.execution_unit(ONE, run.id)
    manager.fail["start", scope] = [BusUnavailable("lost")]
    monkeypatch.setattr(scopes, "is_in", lambda pid, unit: unit in manager.units)
    await scheme.place(box, run, shim)
    manager.fail["start", scope] = [BusUnavailable("lost")] * 3
    await scheme.collect(box, run)
    with pytest.raises(BusUnavailable):
        await scheme.place(box, run, shim)
    assert scope not in manager.units
