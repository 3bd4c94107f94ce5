# SPDX-License-Identifier: Apache-2.0
"""What is counted is what du(1) counts, also where du cannot go."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandboxd.osutil.privileges import of_this_process
from sandboxd.workspace import scan
from sandboxd.workspace.removal import remove_tree


def counted(*paths: Path, uid: int | None = None, most_names: int = 1_000_000) -> scan.Counted:
    steps = scan.count([str(path) for path in paths], uid, most_names)
    try:
        while True:
            next(steps)
    except StopIteration as last:
        found: scan.Counted = last.value
        return found


def used(*paths: Path, uid: int | None = None) -> int:
    found = counted(*paths, uid=uid)
    assert found.obstacle is None
    return found.used_bytes


def du(path: Path) -> int:
    done = subprocess.run(["du", "-s", "-B1", path], check=True, capture_output=True, text=True)
    return int(done.stdout.split()[0])


def test_as_du_does(tmp_path: Path) -> None:
    for number in range(50):
        directory = tmp_path / f"d{number % 7}" / f"e{number % 3}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"f{number}").write_bytes(bytes(number * 1000))
    os.link(tmp_path / "d0" / "e0" / "f0", tmp_path / "hard")
    (tmp_path / "link").symlink_to("/usr")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    os.mkfifo(tmp_path / "pipe")
    found = [path.lstat() for path in tmp_path.rglob("*")]
    without_blocks = {one.st_ino for one in found if one.st_blocks == 0}
    assert used(tmp_path) == du(tmp_path) + len(without_blocks) * 4096


def test_links_out_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/")
    inside = tmp_path / "in"
    inside.mkdir()
    (inside / "up").symlink_to("..")
    # Two links, which have no blocks.
    assert used(tmp_path) == du(tmp_path) + 2 * 4096


def test_below_the_longest_path(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    directory = os.open(top, os.O_RDONLY)
    try:
        for _ in range(5000):
            os.mkdir("deeper", dir_fd=directory)
            below = os.open("deeper", os.O_RDONLY, dir_fd=directory)
            os.close(directory)
            directory = below
        before = used(top)
        fd = os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=directory)
        os.write(fd, bytes(1 << 20))
        os.close(fd)
        assert used(top) - before >= 1 << 20
    finally:
        os.close(directory)
        # Too deep for whoever clears away directories of tests.
        remove_tree(str(top), of_this_process())


def test_deeper_than_can_be_counted_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_MAX_ANCHORS", 2)
    monkeypatch.setattr(scan, "_ANCHOR_BYTES", 10)
    (tmp_path / "/".join(["deeper"] * 20)).mkdir(parents=True)
    found = counted(tmp_path)
    assert found.obstacle == "a tree that is too deep"
    # What was counted is there for certain.
    assert 3 * 4096 <= found.used_bytes < 20 * 4096


def test_paths_that_wait_are_bounded_in_all_depths_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_ANCHOR_BYTES", 10)
    monkeypatch.setattr(scan, "_MAX_WAITING_BYTES", 50 * 100)
    here = tmp_path
    for _ in range(8):
        for number in range(20):
            (here / f"{number:020}").mkdir()
        # What is gone into first, while its siblings wait.
        with os.scandir(here) as names:
            here /= [entry.name for entry in names][-1]
    assert counted(tmp_path).obstacle == "a directory with too many directories in it"
    monkeypatch.setattr(scan, "_MAX_WAITING_BYTES", 8 * 21 * 100)
    assert used(tmp_path) >= 160 * 4096


def test_open_files_without_a_name_count_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other processes of this uid hold removed files, too.
    monkeypatch.setattr(scan, "owners", lambda: [(os.getpid(), os.getuid())])
    with (tmp_path / "gone").open("wb") as file, (tmp_path / "gone").open("rb"):
        file.write(bytes(3 << 20))
        file.flush()
        before = used(tmp_path, uid=os.getuid())
        (tmp_path / "gone").unlink()
        after = used(tmp_path, uid=os.getuid())
    assert abs(after - before) <= 64 << 10
    assert used(tmp_path, uid=os.getuid()) < 1 << 20


def test_what_has_no_blocks_counts_as_an_inode(tmp_path: Path) -> None:
    before = used(tmp_path)
    for number in range(100):
        (tmp_path / str(number)).touch()
        (tmp_path / f"l{number}").symlink_to("x")
        os.mkfifo(tmp_path / f"p{number}")
        os.link(tmp_path / str(number), tmp_path / f"h{number}")
    grown_directory = used(tmp_path) - before - 300 * 4096
    assert 0 <= grown_directory <= 64 << 10


def test_more_names_than_are_worth_it(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    for number in range(20):
        os.link(tmp_path / "f", tmp_path / str(number))
    assert counted(tmp_path, most_names=22).obstacle is None
    found = counted(tmp_path, most_names=21)
    assert found.obstacle == "more names than so many bytes can have"
    assert found.used_bytes == used(tmp_path)


def test_more_descriptors_than_are_worth_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "_MAX_DESCRIPTORS", 2)
    found = counted(tmp_path, uid=os.getuid())
    assert found.obstacle == "over 2 open descriptors"
    assert found.used_bytes == used(tmp_path)


def test_it_gives_way_at_each_name(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number)).touch()
    assert len(list(scan.count([str(tmp_path)], None, 1000))) >= 50


def test_open_files_without_a_name_count_when_the_main_thread_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import ctypes, os, sys, threading, time
held = open(sys.argv[1], "wb"); held.write(bytes(3 << 20)); held.flush(); os.unlink(sys.argv[1])
threading.Thread(target=time.sleep, args=(60,)).start()
print("on", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""
    argv = [sys.executable, "-IS", "-c", code, str(tmp_path / "gone")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"on\n"
            stat = Path(f"/proc/{process.pid}/stat")
            deadline = time.monotonic() + 20
            while stat.read_text().rpartition(") ")[2][0] != "Z":
                assert time.monotonic() < deadline
            monkeypatch.setattr(scan, "owners", lambda: [(process.pid, os.getuid())])
            assert used(tmp_path, uid=os.getuid()) >= 3 << 20
        finally:
            process.kill()
