# SPDX-License-Identifier: Apache-2.0
"""Where files that a command makes are somebody else's on the host, no call gives a set-id bit."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.isolation import seccomp, syscalls
from sandboxd.isolation.seccomp import Filter
from sandboxd.osutil import linux
from tests.conftest import unmet
from tests.unit.isolation.test_seccomp import ENOSYS, EPERM, HIGH, Case, interpret, needs_filter

NONE = [kind for kind in Filter if kind.has_no_set_id]
CREAT, TMPFILE, WRONLY = os.O_CREAT, 0o20000000, os.O_WRONLY
REFUSED = [
    *((name, (0, 0o4755)) for name in ("chmod", "fchmod", "creat", "mknod")),
    *((name, (0, 0, 0o2755)) for name in ("fchmodat", "fchmodat2", "mknodat")),
    ("fchmod", (0, 0o4755 | HIGH)),
    ("mknod", (0, stat.S_IFREG | 0o6755)),
    ("open", (0, CREAT | WRONLY, 0o4755)),
    ("open", (0, TMPFILE | WRONLY, 0o2755)),
    ("openat", (0, 0, CREAT | HIGH, 0o4755)),
    ("openat", (0, 0, TMPFILE | os.O_DIRECTORY, 0o4000)),
]
ALLOWED = [
    *((name, (0, 0o1777)) for name in ("chmod", "fchmod", "creat", "mknod")),
    *((name, (0, 0, 0o755)) for name in ("fchmodat", "fchmodat2", "mknodat")),
    ("mknod", (0, stat.S_IFREG | 0o755)),
    ("open", (0, CREAT, 0o755)),
    # What the register happens to hold: no file is made.
    ("open", (0, WRONLY, 0o4755)),
    ("openat", (0, 0, os.O_DIRECTORY, -1)),
]


@pytest.mark.parametrize("machine", syscalls.ARCHITECTURES)
@pytest.mark.parametrize(
    "case",
    [
        *(Case(name, arguments, EPERM, EPERM) for name, arguments in REFUSED),
        *(Case(name, arguments, 0, 0) for name, arguments in ALLOWED),
        Case("openat2", (), ENOSYS, ENOSYS),
    ],
)
def test_verdict_in_the_interpreter(case: Case, machine: str) -> None:
    number = syscalls.number(case.name, machine)
    if number is None:
        return
    for kind in Filter:
        wanted = case.common if kind.has_no_set_id else 0
        assert interpret(kind, machine, number, case.arguments) == wanted, kind


@given(mode=st.integers(0, (1 << 64) - 1), flags=st.integers(0, (1 << 64) - 1))
def test_no_bit_passes_in_any_company(mode: int, flags: int) -> None:
    for name, at in (*syscalls.CHANGES_MODE.items(), *syscalls.OPENS.items()):
        number = syscalls.number(name, "x86_64")
        assert number is not None
        arguments = [0] * 6
        arguments[at] = mode
        if name in syscalls.OPENS:
            arguments[at - 1] = flags
        asks = mode & 0o6000 and (name not in syscalls.OPENS or flags & (CREAT | TMPFILE))
        said = interpret(Filter.COMMON_NO_SET_ID, "x86_64", number, tuple(arguments))
        assert said == (EPERM if asks else 0)


def test_each_choice_has_its_filter() -> None:
    if seccomp.missing() is not None:
        unmet(f"{seccomp.missing()}")
    for strict in (True, False):
        for set_id in (True, False):
            kind = seccomp.choose(strict=strict, set_id=set_id)
            assert kind is not None
            assert (kind.is_strict, kind.has_no_set_id) == (strict, not set_id)


def made_under(kind: Filter, work: Callable[[], object]) -> bool:
    """Whether a child did it, under the filter."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.umask(0)
            linux.set_no_new_privs()
            seccomp.load(kind)
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


@needs_filter
@pytest.mark.parametrize("kind", Filter)
def test_the_kernel_agrees(kind: Filter, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    ways: list[Callable[[], object]] = [
        lambda: path.chmod(0o4755),
        lambda: os.open(tmp_path / "opened", CREAT | WRONLY, 0o4755),
        lambda: os.open(tmp_path, os.O_TMPFILE | WRONLY, 0o2755),
        lambda: os.mknod(tmp_path / "node", stat.S_IFREG | 0o4755),
    ]
    assert [made_under(kind, way) for way in ways] == [not kind.has_no_set_id] * len(ways)
    set_id = [one for one in tmp_path.iterdir() if one.stat().st_mode & 0o6000]
    assert bool(set_id) is not kind.has_no_set_id
    assert made_under(kind, lambda: path.chmod(0o755))
    assert made_under(kind, lambda: os.open(tmp_path / "plain", CREAT | WRONLY, 0o666))
