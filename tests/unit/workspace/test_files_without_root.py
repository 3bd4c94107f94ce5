# SPDX-License-Identifier: Apache-2.0
"""The files of a home where the daemon is not root: permission bits count, deleting works."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from sandboxd.core.turns import Turn
from sandboxd.errors import AccessDenied, FileConflict
from sandboxd.osutil.privileges import of_this_process
from sandboxd.workspace.files import HomeFiles
from sandboxd.workspace.home_context import HomeContext
from sandboxd.workspace.removal import remove_tree
from sandboxd.workspace.workers import Workers
from tests.conftest import ANOTHER_UID


async def _remove(path: str) -> None:
    await asyncio.to_thread(remove_tree, path, of_this_process())


async def _take(size: int) -> None:
    """There is always room."""


def without_root(top: Path, work: Callable[[HomeFiles, Path], Coroutine[Any, Any, None]]) -> None:
    """Run `work` as a uid that is not root, in a process of its own where this one is."""
    top.chmod(0o711)
    for name in ("home", "staging"):
        (top / name).mkdir()
        if os.getuid() == 0:
            os.chown(top / name, ANOTHER_UID, ANOTHER_UID)
    if os.getuid() != 0:
        asyncio.run(_with_files(top, work))
        return
    child = os.fork()
    if child == 0:
        status = 1
        try:
            # pytest's own directories are root's alone.
            os.chdir(top)
            os.setresgid(ANOTHER_UID, ANOTHER_UID, ANOTHER_UID)
            os.setresuid(ANOTHER_UID, ANOTHER_UID, ANOTHER_UID)
            asyncio.run(_with_files(Path(), work))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


async def _with_files(
    top: Path, work: Callable[[HomeFiles, Path], Coroutine[Any, Any, None]]
) -> None:
    workers = Workers("files", of_this_process(), threads=1)
    home, staging = top / "home", top / "staging"
    turn = Turn(0, "a")
    context = HomeContext(str(home), str(staging), os.getuid(), workers, _remove, _take, turn)
    try:
        await work(HomeFiles(context), home)
    finally:
        workers.close()


async def shut_out(files: HomeFiles, home: Path) -> None:
    (home / "d" / "e").mkdir(parents=True)
    (home / "d" / "e" / "f").write_text("x")
    (home / "g").write_text("x")
    for path in (home / "d" / "e" / "f", home / "d" / "e", home / "d", home / "g"):
        path.chmod(0)
    for name in (b"g", b"d/e/f"):
        with pytest.raises(AccessDenied):
            await files.open_reader(name)
    await files.remove(b"g")
    await files.remove(b"d")
    assert os.listdir(home) == []


def test_what_shuts_out_its_owner_is_told_and_can_be_deleted(tmp_path: Path) -> None:
    without_root(tmp_path, shut_out)


async def write(files: HomeFiles, home: Path) -> None:
    writer = await files.open_writer(b"a/b", mode=0o640, parents=True)
    await writer.write(b"text")
    assert not (home / "a" / "b").exists()
    assert await writer.commit()
    await writer.discard()
    assert (home / "a" / "b").read_bytes() == b"text"
    assert stat.S_IMODE((home / "a" / "b").stat().st_mode) == 0o640
    (home / "out").symlink_to("/")
    with pytest.raises(AccessDenied):
        await files.open_writer(b"out/x", mode=None, parents=True)
    with pytest.raises(FileConflict):
        await files.open_writer(b"a", mode=None, parents=False)
    assert os.listdir(home.parent / "staging") == []


def test_writing(tmp_path: Path) -> None:
    without_root(tmp_path, write)
