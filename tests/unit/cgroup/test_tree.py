# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from pathlib import Path

from sandboxd.cgroup import tree


def test_children(tmp_path: Path) -> None:
    for name in ("b.scope", "a.scope", "x.slice"):
        (tmp_path / name).mkdir()
    (tmp_path / "file.scope").write_text("")
    assert tree.children(str(tmp_path), ".scope") == ["a.scope", "b.scope"]
    assert tree.children(str(tmp_path / "gone"), ".scope") == []


async def test_wait_gone(tmp_path: Path) -> None:
    directory = tmp_path / "a.scope"
    assert await tree.wait_gone(str(directory), timeout_seconds=0)
    directory.mkdir()
    assert not await tree.wait_gone(str(directory), timeout_seconds=0.05)
    asyncio.get_running_loop().call_later(0.05, directory.rmdir)
    assert await tree.wait_gone(str(directory), timeout_seconds=5)
