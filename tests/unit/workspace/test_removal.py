# SPDX-License-Identifier: Apache-2.0
"""Hostile trees go away whole, and nothing outside them is touched."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from sandboxd.osutil.privileges import of_this_process
from sandboxd.workspace.removal import Stopped, remove_tree


def test_nothing_there_is_fine(tmp_path: Path) -> None:
    remove_tree(str(tmp_path / "absent"), of_this_process())


def test_tree_deeper_than_any_path_or_recursion(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    directory = os.open(top, os.O_RDONLY)
    for _ in range(5000):
        os.mkdir("deeper", dir_fd=directory)
        below = os.open("deeper", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = below
    os.close(os.open("file", os.O_CREAT, dir_fd=directory))
    os.close(directory)
    remove_tree(str(top), of_this_process())
    assert not top.exists()


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "below").mkdir(parents=True)
    (kept / "file").write_text("canary")
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    for place in (top, top / "a", top / "a" / "b"):
        (place / "to-directory").symlink_to(kept)
        (place / "to-file").symlink_to(kept / "file")
        (place / "broken").symlink_to("/nowhere")
        os.link(kept / "file", place / "hard")
    remove_tree(str(top), of_this_process())
    assert not top.exists()
    assert (kept / "file").read_text() == "canary"
    assert (kept / "below").is_dir()


def test_top_that_is_a_link_is_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("canary")
    link = tmp_path / "link"
    link.symlink_to(kept)
    try:
        remove_tree(str(link), of_this_process())
    except OSError:
        assert (kept / "file").read_text() == "canary"
    else:
        raise AssertionError("followed a link")


def test_odd_names_special_files_and_modes(tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    os.mkdir(os.fsencode(top) + b"/\xff\xfe")
    Path(os.fsdecode(os.fsencode(top) + b"/\xff\xfe/\xfd\n")).write_text("x")
    (top / ".removed-1").mkdir()
    (top / ".removed-1" / ".removed-2").mkdir()
    os.mkfifo(top / "fifo")
    (top / "shut").mkdir()
    (top / "shut" / "file").write_text("x")
    (top / "shut").chmod(0)
    remove_tree(str(top), of_this_process())
    assert not top.exists()


def test_many_entries(tmp_path: Path) -> None:
    top = tmp_path / "top"
    for number in range(300):
        (top / f"d{number}" / "e").mkdir(parents=True)
        (top / f"d{number}" / "e" / "f").write_text("")
        (top / f"f{number}").write_text("")
    remove_tree(str(top), of_this_process())
    assert not top.exists()


def test_one_that_is_stopped_can_be_finished_later(tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "a" / "b").mkdir(parents=True)
    stop = Event()
    stop.set()
    with pytest.raises(Stopped):
        remove_tree(str(top), of_this_process(), stop)
    assert remove_tree(str(top), of_this_process(), Event())
    assert not top.exists()


def test_no_more_than_asked_for_is_removed_at_a_time(tmp_path: Path) -> None:
    top = tmp_path / "top"
    for number in range(20):
        (top / f"d{number}").mkdir(parents=True)
        (top / f"f{number}").write_text("")
    assert not remove_tree(str(top), of_this_process(), most=20)
    assert len([*top.iterdir()]) >= 20
    assert remove_tree(str(top), of_this_process(), most=60)
    assert not top.exists()


def test_two_at_one_tree_do_not_stop_each_other(tmp_path: Path) -> None:
    top = tmp_path / "top"
    for number in range(200):
        (top / f"d{number}" / "e" / "f").mkdir(parents=True)
        (top / f"d{number}" / "e" / "g").write_text("")
    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(remove_tree, [str(top)] * 2, [of_this_process()] * 2))
    assert not top.exists()
