# SPDX-License-Identifier: Apache-2.0
"""Descriptors: directories, files in memory, and which stay open."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd.osutil.descriptors import (
    close_all_but,
    closing_fd,
    memory_file,
    open_directory,
    path_of,
)


def test_a_link_is_followed_unless_told_otherwise(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there")
    with closing_fd(open_directory(str(tmp_path))) as above:
        with closing_fd(open_directory("link", above=above)) as fd:
            assert os.path.samestat(os.fstat(fd), (tmp_path / "there").stat())
            assert not os.get_inheritable(fd)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
        with pytest.raises(NotADirectoryError):
            open_directory("link", above=above, follow=False)


def test_a_descriptor_s_path_leads_to_the_file_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with closing_fd(os.open(tmp_path / "file", os.O_PATH)) as fd:
        (tmp_path / "file").rename(tmp_path / "moved")
        (tmp_path / "file").symlink_to("/dev/null")
        assert Path(path_of(fd)).read_text() == "here"


def test_a_file_in_memory_holds_all_of_it() -> None:
    data = bytes(range(256)) * 4096
    with closing_fd(memory_file("data", data)) as fd:
        assert os.pread(fd, 2 << 20, 0) == data


def test_only_what_is_kept_stays_open() -> None:
    fds = [os.open("/dev/null", os.O_RDONLY) for _ in range(5)]
    pid = os.fork()
    if pid == 0:
        kept = [fds[3], fds[1]]
        close_all_but(kept)
        left = [fd for fd in (0, 1, 2, *fds) if os.path.exists(f"/proc/self/fd/{fd}")]
        os._exit(0 if left == [0, 1, 2, fds[1], fds[3]] else 1)
    for fd in fds:
        os.close(fd)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
