# SPDX-License-Identifier: Apache-2.0
"""Inodes of one's own over the same files: what is mounted below stays, locks are not shared."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxd.isolation import layers, mounts
from sandboxd.isolation.layers import Mask
from sandboxd.osutil import linux

pytestmark = pytest.mark.usefixtures("requires_root")


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
            layers.cover([str(tree)], str(tree.parent / "scratch"), {})
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
        layers.cover([str(tree)], str(tree.parent / "scratch"), {})
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
        layers.cover([str(tree)], str(tree.parent / "scratch"), {})
        return (tree / "file").read_text()

    assert apart(look) == "other"


def test_the_scratch_is_as_it_was(tree: Path) -> None:
    scratch = tree.parent / "scratch"

    def look() -> str:
        layers.cover([str(tree)], str(scratch), {})
        return str(scratch.is_mount())

    assert apart(look) == "False"


def test_nothing_to_cover_is_fine(tree: Path) -> None:
    def look() -> str:
        layers.cover([], str(tree.parent / "scratch"), {})
        return "fine"

    assert apart(look) == "fine"


def masked(tree: Path, mask: Mask) -> None:
    layers.cover([str(tree)], str(tree.parent / "scratch"), {str(tree): mask})


def test_what_is_hidden_is_not_there_even_if_it_comes_later(tree: Path) -> None:
    (tree / "secrets").mkdir()
    beside = os.open(tree, os.O_PATH)

    def look() -> str:
        masked(tree, Mask(hidden=("file", "later", "secrets")))
        before = sorted(os.listdir(tree))
        Path(f"/proc/self/fd/{beside}/later").touch()
        layers.refresh()
        return f"{before} {(tree / 'later').exists()}"

    assert apart(look) == "['sub dir'] False"
    assert (tree / "later").exists()
    os.close(beside)


def test_a_name_of_ones_own_is_an_empty_file_to_mount_over(tree: Path) -> None:
    (tree.parent / "mine").write_text("mine")

    def look() -> str:
        masked(tree, Mask(own=("file", "absent")))
        found = [(tree / name).read_text() for name in ("file", "absent")]
        linux.mount(str(tree.parent / "mine"), str(tree / "file"), None, linux.MS_BIND)
        return f"{found} {(tree / 'file').read_text()}"

    assert apart(look) == "['', ''] mine"


def test_what_is_mounted_on_what_is_hidden_is_hidden_too(tree: Path) -> None:
    (tree.parent / "other").write_text("other")

    def look() -> str:
        for name in ("sub dir", "file"):
            is_directory = name == "sub dir"
            source = "x" if is_directory else str(tree.parent / "other")
            kind, flags = ("tmpfs", 0) if is_directory else (None, linux.MS_BIND)
            linux.mount(source, str(tree / name), kind, flags)
        masked(tree, Mask(hidden=("sub dir",), own=("file",)))
        return f"{os.listdir(tree)} {(tree / 'file').read_text()!r}"

    assert apart(look) == "['file'] ''"


def test_what_is_kept_is_all_that_is_seen_of_what_is_hidden(tree: Path) -> None:
    for name in ("shown/file", "shown/more/file", "not/file", "shown too/file"):
        path = tree / "sub dir" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)

    def look() -> str:
        kept = ("sub dir/shown/file", "sub dir/shown too")
        masked(tree, Mask(hidden=("sub dir",), kept=kept))
        return repr([str(path.relative_to(tree)) for path in sorted((tree / "sub dir").rglob("*"))])

    assert apart(look) == repr(
        ["sub dir/shown", "sub dir/shown/file", "sub dir/shown too", "sub dir/shown too/file"]
    )


def test_a_directory_keeps_its_permissions(tree: Path) -> None:
    tree.chmod(0o750)

    def modes() -> str:
        found = []
        for masks in ({}, {str(tree): Mask(hidden=("file",))}):
            layers.cover([str(tree)], str(tree.parent / "scratch"), masks)
            found.append(oct(tree.stat().st_mode & 0o777))
        return " ".join(found)

    assert apart(modes) == "0o750 0o750"


def test_what_changes_below_is_seen_after_a_refresh(tree: Path) -> None:
    (tree / "sub dir/replaced").write_text("old")
    (tree / "sub dir/removed").write_text("old")
    beside = os.open(tree, os.O_PATH)

    def seen() -> list[str]:
        found = []
        for name in ("new", "replaced", "removed"):
            path = tree / "sub dir" / name
            found.append(path.read_text() if path.exists() else "none")
        return found

    def look() -> str:
        layers.cover([str(tree)], str(tree.parent / "scratch"), {})
        before = seen()
        under = f"/proc/self/fd/{beside}/sub dir"
        Path(f"{under}/new").write_text("new")
        Path(f"{under}/next").write_text("new")
        os.rename(f"{under}/next", f"{under}/replaced")
        os.unlink(f"{under}/removed")
        behind = seen()
        layers.refresh()
        return f"{before} {behind} {seen()}"

    assert apart(look) == ("['none', 'old', 'old'] ['none', 'old', 'old'] ['new', 'new', 'none']")
    os.close(beside)


def test_a_refresh_is_due_once_a_second_and_one_that_failed_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refreshed: list[bool] = []

    def refresh(works: bool) -> None:
        refreshed.append(works)
        if not works:
            raise OSError(errno.ENOMEM, "no memory for a remount")

    freshness = layers.Freshness(str(tmp_path))
    for long_ago in (0, 1 << 33):
        os.utime(tmp_path, (long_ago, long_ago))
        monkeypatch.setattr(layers, "refresh", lambda: refresh(works=False))
        for _ in range(2):
            with pytest.raises(OSError, match="no memory"):
                freshness.ensure()
        monkeypatch.setattr(layers, "refresh", lambda: refresh(works=True))
        freshness.ensure()
        freshness.ensure()
        assert refreshed == [False, False, True]
        refreshed.clear()
    freshness.close()
