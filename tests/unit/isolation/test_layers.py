# SPDX-License-Identifier: Apache-2.0
"""Inodes of one's own over the same files: what is mounted below stays, locks are not shared."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.isolation import layers, linux, mounts

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def apart(work: Callable[[], str]) -> str:
    """What `work` says in a mount namespace of its own."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            linux.unshare(linux.CLONE_NEWNS)
            mounts.stop_propagation()
            os.write(write, work().encode())
        except OSError as exc:
            os.write(write, f"error: {exc}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "top"
    (top / "sub dir").mkdir(parents=True)
    (top / "file").write_text("text")
    (tmp_path / "scratch").mkdir()
    return top


def test_files_are_the_same_and_locks_are_not(tree: Path) -> None:
    with (tree / "file").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def look() -> str:
            layers.cover([str(tree)], str(tree.parent / "scratch"))
            with (tree / "file").open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file.read()

        assert apart(look) == "text"


def test_a_plain_view_would_share_them(tree: Path) -> None:
    with (tree / "file").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)

        def look() -> str:
            with (tree / "file").open() as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return file.read()

        assert "error: [Errno 11]" in apart(look)


def test_what_is_mounted_below_stays_and_is_covered_too(tree: Path) -> None:
    below = tree / "sub dir"

    def look() -> str:
        linux.mount("x", str(below), "tmpfs", 0, "size=64k")
        (below / "mounted").write_text("below")
        layers.cover([str(tree)], str(tree.parent / "scratch"))
        text = (below / "mounted").read_text()
        try:
            (below / "new").touch()
        except OSError as exc:
            return f"{text} {exc.errno}"
        return "written"

    assert apart(look) == "below 30"


def test_a_file_that_is_mounted_stays(tree: Path) -> None:
    (tree.parent / "other").write_text("other")

    def look() -> str:
        linux.mount(str(tree.parent / "other"), str(tree / "file"), None, linux.MS_BIND)
        layers.cover([str(tree)], str(tree.parent / "scratch"))
        return (tree / "file").read_text()

    assert apart(look) == "other"


def test_the_scratch_is_as_it_was(tree: Path) -> None:
    scratch = tree.parent / "scratch"

    def look() -> str:
        layers.cover([str(tree)], str(scratch))
        return str(scratch.is_mount())

    assert apart(look) == "False"


def test_nothing_to_cover_is_fine(tree: Path) -> None:
    def look() -> str:
        layers.cover([], str(tree.parent / "scratch"))
        return "fine"

    assert apart(look) == "fine"
