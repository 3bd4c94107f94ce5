# SPDX-License-Identifier: Apache-2.0
"""Who removes a tree: a thread what is small, a process of its own what is not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxd.core.model import Isolation, Network
from sandboxd.core.turns import Turn
from sandboxd.errors import InternalError
from sandboxd.osutil.privileges import of_this_process
from sandboxd.workspace import identity
from sandboxd.workspace.directories import Directories
from sandboxd.workspace.removal import remove_tree
from tests.unit.values import a_sandbox

SMALL, LARGE = 20, 2000


class Helper:
    """Removes trees as a builder does, or refuses to."""

    def __init__(self, *, works: bool) -> None:
        self._works = works
        self.left: list[int] = []
        self.turns: list[Turn] = []

    async def remove_tree(self, path: str, turn: Turn) -> None:
        """Fits removals.Helpers."""
        self.left.append(len(os.listdir(path)))
        self.turns.append(turn)
        if not self._works:
            raise InternalError("the builder died")
        remove_tree(path, of_this_process())


class NoMounts:
    """For sandboxes without a disk of their own."""

    def directory(self, name: str) -> str:
        """Fits own_disks.Mounts."""
        raise AssertionError(name)

    async def hold(self, name: str, *, image: str, size_bytes: int, gid: int) -> None:
        """Fits own_disks.Mounts."""
        raise AssertionError(name)

    async def remove(self, name: str) -> None:
        """Fits own_disks.Mounts."""
        raise AssertionError(name)

    async def remove_others(self, kept: Collection[str]) -> None:
        """Fits own_disks.Mounts."""
        raise AssertionError(kept)


@pytest.fixture
def directories(tmp_path: Path) -> Iterator[Directories]:
    """A state directory."""
    made = Directories(str(tmp_path), of_this_process())
    (tmp_path / "sandboxes").mkdir()
    yield made
    made.close()


def fill(directories: Directories, entries: int) -> None:
    home = Path(directories.home("a"))
    home.mkdir(parents=True)
    for number in range(entries):
        (home / str(number)).touch()


@pytest.mark.parametrize("works", [True, False], ids=["works", "refuses"])
@pytest.mark.parametrize("entries", [SMALL, LARGE])
def test_a_large_tree_is_given_to_a_helper(
    directories: Directories, entries: int, works: bool
) -> None:
    helper = Helper(works=works)
    fill(directories, entries)

    async def remove() -> None:
        await directories.use(helper, NoMounts())
        await directories.remove("a")

    asyncio.run(remove())
    assert not os.path.exists(os.path.dirname(directories.home("a")))
    if entries == SMALL:
        assert helper.left == []
    else:
        assert len(helper.left) == 1


def test_names_of_the_host_are_rewritten_in_their_place(
    directories: Directories, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = {"hosts": "long names " * 9, "resolv.conf": "nameserver 192.0.2.1\n"}
    monkeypatch.setattr(identity, "text", lambda sandbox, name, home: said[name])
    box = replace(a_sandbox(), isolation=Isolation.STANDARD, network=Network.HOST)
    place = Path(directories.home(box.id)).parent
    place.mkdir()
    (place / "hosts").write_text("mounted")
    (place / "hosts").chmod(0o644)
    with (place / "hosts").open() as mounted:
        for said["hosts"] in ("long names " * 9, "short", "short"):
            asyncio.run(directories.follow_host(box))
            mounted.seek(0)
            assert mounted.read() == said["hosts"]
    assert (place / "resolv.conf").read_text() == said["resolv.conf"]
    (place / "hosts").unlink()
    asyncio.run(directories.follow_host(replace(box, network=Network.LOOPBACK)))
    assert not (place / "hosts").exists()
    (place / "hosts").mkdir()
    asyncio.run(directories.follow_host(box))
    assert "goes on with an old hosts: Is a directory" in caplog.text.replace("[Errno 21] ", "")


def test_without_a_helper_a_thread_does_it_all(directories: Directories) -> None:
    fill(directories, LARGE)
    asyncio.run(directories.remove("a"))
    assert not os.path.exists(os.path.dirname(directories.home("a")))
