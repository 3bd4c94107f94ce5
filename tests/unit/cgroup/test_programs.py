# SPDX-License-Identifier: Apache-2.0
"""Asking the kernel for a cgroup's programs: no answer is no zero."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from sandboxd.cgroup import programs


@pytest.mark.parametrize("hook", programs.Hook)
def test_a_directory_that_is_no_cgroup_has_no_answer(hook: programs.Hook, tmp_path: Path) -> None:
    assert programs.count(str(tmp_path), hook) is None


def test_a_cgroup_that_is_gone_has_none(tmp_path: Path) -> None:
    assert programs.count(str(tmp_path / "gone"), programs.Hook.EGRESS) == 0


def test_an_unknown_machine_has_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = os.uname_result(("Linux", "host", "6.1", "#1", "vax"))
    monkeypatch.setattr(os, "uname", lambda: machine)
    assert programs.count(str(tmp_path), programs.Hook.DEVICE) is None


def test_the_kernel_has_room_for_what_it_writes() -> None:
    """union bpf_attr of later kernels has `revision` at byte 56 of the query."""
    assert ctypes.sizeof(programs._Query) >= 256
    assert programs._Query.prog_cnt.offset == 24
