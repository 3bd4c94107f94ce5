# SPDX-License-Identifier: Apache-2.0
"""Results of the C library as Python's own calls give them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sandboxd.osutil import linux
from sandboxd.osutil.libc import checked, libc


def test_a_result_is_given_back() -> None:
    assert checked(libc.getpid()) == os.getpid()


def test_an_error_has_the_number_the_doing_and_the_path() -> None:
    with pytest.raises(IsADirectoryError) as caught:
        checked(libc.unlink(b"/proc"), "unlink /proc", "/proc")
    assert caught.value.errno == errno.EISDIR
    assert caught.value.filename == "/proc"
    assert caught.value.strerror == f"unlink /proc: {os.strerror(errno.EISDIR)}"


def test_openat2_stays_below_its_directory(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    directory = os.open(tmp_path, os.O_PATH)
    try:
        with pytest.raises(OSError, match="link") as caught:
            linux.openat2(directory, b"link", os.O_RDONLY, resolve=linux.RESOLVE_BENEATH)
    finally:
        os.close(directory)
    assert caught.value.errno == errno.EXDEV
    assert caught.value.filename == b"link"
