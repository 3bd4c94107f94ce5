# SPDX-License-Identifier: Apache-2.0
"""Access filters of slices: addresses and devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sandboxd.cgroup import programs
from sandboxd.core.model import Isolation, Network
from sandboxd.engine.ports.launch import Shim
from sandboxd.errors import LimitNotApplied, PropertyRejected
from tests.unit.schemes.fake_manager import FakeManager
from tests.unit.schemes.made import NAMES, ONE, TWO, execution, opened, sandbox


async def test_a_scope_without_its_filters_is_no_start(
    manager: FakeManager, tmp_path: Path, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, int | None] = {"egress": 1, "device": 1}

    def count(directory: str, hook: programs.Hook) -> int | None:
        assert directory.endswith(".slice" if hook is programs.Hook.DEVICE else ".scope")
        return found["device" if hook is programs.Hook.DEVICE else "egress"]

    monkeypatch.setattr(programs, "count", count)
    scheme = await opened(manager, tmp_path)
    box = replace(sandbox(), isolation=Isolation.STANDARD)
    await scheme.create_sandbox(box)
    first = execution("aaaaaaaaaaaa")
    await scheme.place(box, first, shim)
    scheme.probe(box, first)
    assert scheme.missing == ()
    for lost, words in (("egress", "address filter"), ("device", "device filter")):
        found[lost] = 0
        with pytest.raises(LimitNotApplied, match=words):
            await scheme.place(box, execution("bbbbbbbbbbbb"), shim)
        assert scheme.execution_unit(ONE, "bbbbbbbbbbbb") not in manager.units
        found[lost] = 1
    await scheme.place(box, execution("cccccccccccc"), shim)


@pytest.mark.parametrize("answer", [0, None])
async def test_a_host_without_such_filters_says_so_and_goes_on(
    manager: FakeManager, tmp_path: Path, shim: Shim, monkeypatch: pytest.MonkeyPatch,
    answer: int | None,
) -> None:  # fmt: skip
    monkeypatch.setattr(programs, "count", lambda directory, hook: answer)
    scheme = await opened(manager, tmp_path)
    box = replace(sandbox(), isolation=Isolation.STRICT)
    await scheme.create_sandbox(box)
    first = execution("aaaaaaaaaaaa")
    await scheme.place(box, first, shim)
    scheme.probe(box, first)
    assert [one.partition(":")[0] for one in scheme.missing] == ["address filter", "device filter"]
    await scheme.place(box, execution("bbbbbbbbbbbb"), shim)


async def test_a_filter_that_comes_late_is_waited_for(
    manager: FakeManager, tmp_path: Path, shim: Shim, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [1, 1, 0, 0]
    monkeypatch.setattr(programs, "count", lambda directory, hook: (answers or [1]).pop(0))
    scheme = await opened(manager, tmp_path)
    await scheme.create_sandbox(sandbox())
    await scheme.place(sandbox(), execution("aaaaaaaaaaaa"), shim)
    scheme.probe(sandbox(), execution("aaaaaaaaaaaa"))
    await scheme.place(sandbox(), execution("bbbbbbbbbbbb"), shim)
    assert answers == []


async def test_a_manager_that_takes_no_filter_is_named(
    manager: FakeManager, tmp_path: Path, shim: Shim
) -> None:
    refusal = PropertyRejected("x", "org.freedesktop.DBus.Error.PropertyReadOnly", "no")
    # The first start of the probe is for IO limits.
    manager.fail["start", f"{NAMES.stem}-probe.slice"] = [None, refusal]
    scheme = await opened(manager, tmp_path)
    assert scheme.missing[0].startswith("address filter and device filter: ")
    box = replace(sandbox(), isolation=Isolation.STRICT, network=Network.NONE)
    await scheme.create_sandbox(box)
    assert not {"IPAddressDeny", "DevicePolicy"} & set(manager.given[NAMES.sandbox_slice(ONE)])
    await scheme.place(box, execution("aaaaaaaaaaaa"), shim)
    scheme.probe(box, execution("aaaaaaaaaaaa"))
    await scheme.place(box, execution("bbbbbbbbbbbb"), shim)


async def test_a_slice_gets_the_filter_of_its_sandbox(manager: FakeManager, tmp_path: Path) -> None:
    scheme = await opened(manager, tmp_path)
    await scheme.create_sandbox(sandbox())
    given = manager.given[NAMES.sandbox_slice(ONE)]
    assert given["IPAddressDeny"][0][2] == 16
    assert "DevicePolicy" not in given
    box = replace(sandbox(TWO), isolation=Isolation.STRICT, network=Network.NONE)
    await scheme.create_sandbox(box)
    given = manager.given[NAMES.sandbox_slice(TWO)]
    assert [row[2] for row in given["IPAddressDeny"]] == [0, 0]
    assert [row[2] for row in given["IPAddressAllow"]] == [8, 128]
    assert given["DevicePolicy"] == "closed"
