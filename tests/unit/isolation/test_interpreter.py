# SPDX-License-Identifier: Apache-2.0
"""What a program that cannot be executed would have needed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxd.isolation import interpreter


def program(directory: Path, head: bytes, mode: int = 0o755) -> str:
    path = directory / "program"
    path.write_bytes(head)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("head", "needed"),
    [(b"#!/no/such\n", "/no/such"), (b"#! \t/no/such -x\n", "/no/such"), (b"#!/no\tx", "/no"),
     (b"#!/bin/sh\r\necho\n", "/bin/sh\r"), (b"\x7fELF\2\1\1", interpreter.LOADER),
     (b"#!\xff\n", "\\xff"), (b"#!/" + b"x" * 999, "/" + "x" * 127),
     (b"#!\n", None), (b"#!  \n/no\n", None), (b"", None), (b"text\n", None)],
)  # fmt: skip
def test_of_a_file(tmp_path: Path, head: bytes, needed: str | None) -> None:
    assert interpreter.needed_by(program(tmp_path, head), {}) == needed


def test_it_is_looked_for_as_the_kernel_was_asked_to(tmp_path: Path) -> None:
    program(tmp_path, b"#!/no/such\n")
    assert interpreter.needed_by("program", {"PATH": f"/nowhere:{tmp_path}"}) == "/no/such"
    assert interpreter.needed_by("program", {"PATH": "/nowhere"}) is None


def test_what_is_no_program_has_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o777)
    assert interpreter.needed_by(str(tmp_path / "fifo"), {}) is None
    assert interpreter.needed_by(str(tmp_path), {}) is None
    assert interpreter.needed_by(program(tmp_path, b"#!/no/such\n", 0o644), {}) is None
