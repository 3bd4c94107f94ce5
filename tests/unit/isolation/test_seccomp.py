# SPDX-License-Identifier: Apache-2.0
"""The system-call filter: each verdict in an interpreter for both machines, and by this kernel."""

from __future__ import annotations

import ctypes
import errno
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.isolation import seccomp, syscalls
from sandboxd.isolation.seccomp import Filter
from sandboxd.osutil import linux
from tests.unit.isolation import bpf

HIGH = 1 << 32
NEWNS, NEWUSER, NEWCGROUP, NEWTIME = 0x00020000, 0x10000000, 0x02000000, 0x80
THREAD_FLAGS = 0x003D0F00  # what the C library's pthread_create asks for
TIOCSTI, TIOCGWINSZ, SETFLAGS, GETFLAGS = 0x5412, 0x5413, 0x40086602, 0x80086601
SEQPACKET, CLOEXEC, SCTP = 5, 0o2000000, 132
# Filters of sockets, keys of TCP connections, packet options of IPv6.
TABLES_OF_SOCKETS = ((1, 26), (1, 51), (6, 14), (6, 32), (6, 38), (41, 6))


class Case(NamedTuple):
    """A call, and the errno of each filter's refusal (0: none)."""

    name: str
    arguments: tuple[int, ...]
    common: int
    strict: int

    def verdict(self, kind: Filter) -> int:
        return self.strict if kind.is_strict else self.common


def both(name: str, arguments: tuple[int, ...], number: int) -> Case:
    return Case(name, arguments, number, number)


EPERM, ENOSYS, EAFNOSUPPORT = errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT
ENOMEM = errno.ENOMEM
NOPROTO = errno.EPROTONOSUPPORT
WHOLE = [
    *(both(name, (), number) for name, number in sorted(syscalls.REFUSED.items())),
    *(Case(name, (), 0, number) for name, number in sorted(syscalls.REFUSED_STRICT.items())),
]
BY_ARGUMENT = [
    both("clone", (NEWUSER,), EPERM),
    both("clone", (NEWNS | 17,), EPERM),
    both("clone", (NEWCGROUP | HIGH,), EPERM),
    both("unshare", (NEWUSER,), EPERM),
    both("unshare", (NEWTIME,), EPERM),
    both("unshare", (NEWUSER | HIGH,), EPERM),
    both("unshare", (0x400,), 0),
    both("ioctl", (0, TIOCSTI), EPERM),
    # The kernel cuts the request down to 32 bits, so the high half must not hide it.
    both("ioctl", (0, TIOCSTI | HIGH), EPERM),
    both("ioctl", (0, TIOCSTI | 0xFFFFFFFF << 32), EPERM),
    both("ioctl", (0, 0x541C), EPERM),
    both("ioctl", (0, 0x401C5820), EPERM),
    *(both("ioctl", (0, 0x50009400 + number), EPERM) for number in (1, 14, 15, 23, 24, 63)),
    both("ioctl", (0, 0x4008941A), EPERM),
    # BTRFS_IOC_CLONE, FICLONE: copies of files are fine.
    both("ioctl", (-1, 0x40049409), 0),
    both("ioctl", (-1, SETFLAGS), EPERM),
    both("ioctl", (-1, GETFLAGS), 0),
    both("ioctl", (-1, TIOCGWINSZ), 0),
    both("personality", (0xFFFFFFFF,), 0),
    both("personality", (0x0040000,), 0),
    both("personality", (0x0400000,), EPERM),
    both("personality", (0x0100000,), EPERM),
    both("personality", (0x0100000 | HIGH,), EPERM),
    *(both("socket", (family, 1, 0), 0) for family in (1, 2, 10)),
    # Netlink of any protocol, route among them.
    *(both("socket", (16, 3 | CLOEXEC, one), EAFNOSUPPORT) for one in (0, 2, 6, 9, 12, 16)),
    both("socket", (2, 2 | CLOEXEC, 17), 0),
    *(both("socket", (family, 1, 0), EAFNOSUPPORT) for family in (0, 17, 21, 30, 31, 38, 40, 44)),
    both("socket", (40 | HIGH, 1, 0), EAFNOSUPPORT),
    both("socketpair", (40, 1, 0), EAFNOSUPPORT),
    both("socketpair", (1, SEQPACKET, 0), 0),
    Case("socket", (2, SEQPACKET | CLOEXEC, 0), 0, NOPROTO),
    Case("socket", (10, 1, SCTP), 0, NOPROTO),
    # Huge pages, of any size: bit 26 and up say which.
    both("mmap", (0, 4096, 3, 0x40022, -1, 0), ENOMEM),
    both("mmap", (0, 4096, 3, 0x40022 | 21 << 26, -1, 0), ENOMEM),
    both("mmap", (0, 4096, 3, 0x40022 | HIGH, -1, 0), ENOMEM),
    both("mmap", (0, 4096, 3, 0x22, -1, 0), 0),
    both("shmget", (0, 4096, 0o4600), ENOMEM),
    both("shmget", (0, 0, 0o1600), 0),
    Case("memfd_create", (0, 0x4), ENOMEM, ENOSYS),
    Case("memfd_create", (0, 0x4 | 21 << 26), ENOMEM, ENOSYS),
    Case("memfd_create", (0, 0x1), 0, ENOSYS),
    *(both("setsockopt", (-1, *option, 0, 0), EPERM) for option in TABLES_OF_SOCKETS),
    both("setsockopt", (-1, 1, 26 | HIGH, 0, 0), EPERM),
    both("setsockopt", (-1, 6, 26, 0, 0), 0),
    both("setsockopt", (-1, 1, 14, 0, 0), 0),
]
CASES = [*WHOLE, *BY_ARGUMENT]


def name_of(case: Case) -> str:
    return f"{case.name}{[hex(argument) for argument in case.arguments] or ''}"


def interpret(kind: Filter, machine: str, number: int, arguments: tuple[int, ...] = ()) -> int:
    """The errno of the refusal, 0 where the call is allowed."""
    program = seccomp.assemble(kind, machine)
    answer = bpf.run(program, syscalls.ARCHITECTURES[machine], number, arguments)
    if answer == seccomp.ALLOW:
        return 0
    assert answer & ~0xFFFF == seccomp.REFUSE
    return answer & 0xFFFF


@pytest.mark.parametrize("machine", syscalls.ARCHITECTURES)
@pytest.mark.parametrize("kind", Filter)
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_verdict_in_the_interpreter(case: Case, kind: Filter, machine: str) -> None:
    number = syscalls.number(case.name, machine)
    if number is not None:
        assert interpret(kind, machine, number, case.arguments) == case.verdict(kind)


@pytest.mark.parametrize("machine", syscalls.ARCHITECTURES)
@pytest.mark.parametrize("kind", Filter)
def test_all_that_is_in_no_table_is_allowed(kind: Filter, machine: str) -> None:
    refused = {
        number
        for name in syscalls.NUMBERS
        if (number := syscalls.number(name, machine)) is not None
    }
    for number in set(range(syscalls.LAST_REVIEWED + 1)) - refused:
        assert interpret(kind, machine, number, (-1, -1, -1, -1, -1, -1)) == 0, number


@pytest.mark.parametrize("machine", syscalls.ARCHITECTURES)
def test_threads_and_plain_forks_are_allowed(machine: str) -> None:
    number = syscalls.number("clone", machine)
    assert number is not None
    for flags in (THREAD_FLAGS, 17, 0x01200011, 0x4111):
        assert interpret(Filter.STRICT, machine, number, (flags,)) == 0


@given(flags=st.integers(0, (1 << 64) - 1))
def test_no_flag_of_a_namespace_passes_in_any_company(flags: int) -> None:
    number = syscalls.number("clone", "x86_64")
    assert number is not None
    asks = bool(flags & 0x7E020000)
    assert interpret(Filter.COMMON, "x86_64", number, (flags,)) == (EPERM if asks else 0)


@given(number=st.integers(syscalls.LAST_REVIEWED + 1, (1 << 31) - 1))
def test_calls_that_nobody_reviewed_are_absent(number: int) -> None:
    for machine in syscalls.ARCHITECTURES:
        assert interpret(Filter.COMMON, machine, number) == ENOSYS


def test_x32_calls_are_absent() -> None:
    mount = syscalls.number("mount", "x86_64")
    assert mount is not None
    assert interpret(Filter.COMMON, "x86_64", 0x40000000 | mount) == ENOSYS
    assert interpret(Filter.COMMON, "x86_64", 0x40000000) == ENOSYS


@pytest.mark.parametrize("foreign", [0x40000003, 0x40000028, 0, 0x80000016])
@pytest.mark.parametrize("machine", syscalls.ARCHITECTURES)
def test_another_architecture_s_calls_kill(machine: str, foreign: int) -> None:
    for kind in Filter:
        program = seccomp.assemble(kind, machine)
        assert bpf.run(program, foreign, 20, ()) == seccomp.KILL_PROCESS


@pytest.mark.parametrize("machine", syscalls.ARCHITECTURES)
def test_strict_refuses_all_that_common_does(machine: str) -> None:
    for case in CASES:
        number = syscalls.number(case.name, machine)
        if number is not None and case.common:
            assert interpret(Filter.STRICT, machine, number, case.arguments)


HEADERS = {
    "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    "aarch64": "/usr/include/asm-generic/unistd.h",
}


def with_headers(machine: str) -> Any:
    lacks = not Path(HEADERS[machine]).exists()
    reason = f"no kernel headers of {machine} here"
    return pytest.param(machine, marks=pytest.mark.skipif(lacks, reason=reason))


@pytest.mark.parametrize("machine", [with_headers(machine) for machine in HEADERS])
def test_numbers_are_the_kernel_headers_own(machine: str) -> None:
    text = Path(HEADERS[machine]).read_text()
    found = re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", text, re.MULTILINE)
    header = {name: int(number) for name, number in found}
    for name in syscalls.NUMBERS:
        number = syscalls.number(name, machine)
        if name in header:
            assert number == header[name], name
        else:
            # Younger than the header, or none of this machine's.
            assert number is None or number > max(header.values()), name


# -- by the kernel

libc = ctypes.CDLL(None, use_errno=True)
needs_filter = pytest.mark.usefixtures("requires_filter")


def called_for_real(kind: Filter | None, case: Case) -> int:
    """The errno of a call that a child made, filtered or not; 0 where it succeeded."""
    number = syscalls.number(case.name, os.uname().machine)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            linux.set_no_new_privs()
            if kind is not None:
                seccomp.load(kind)
            # All that a call can take: else the kernel takes what the registers hold.
            arguments = (*case.arguments, *[0] * 6)[:6]
            words = [ctypes.c_ulong(argument % (1 << 64)) for argument in arguments]
            result = libc.syscall(ctypes.c_long(number or 0), *words)
            os.write(write, str(ctypes.get_errno() if result < 0 else 0).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return int(text)


def is_here(case: Case) -> bool:
    return seccomp.missing() is None and syscalls.number(case.name, os.uname().machine) is not None


@needs_filter
@pytest.mark.parametrize("kind", Filter)
@pytest.mark.parametrize("case", [case for case in CASES if is_here(case)], ids=name_of)
def test_the_kernel_agrees(case: Case, kind: Filter) -> None:
    # None of those that are allowed does harm, with these arguments, where nothing filters.
    wanted = case.verdict(kind) or called_for_real(None, case)
    assert called_for_real(kind, case) == wanted


@needs_filter
def test_a_filter_lasts_over_exec_and_cannot_be_taken_off() -> None:
    pid = os.fork()
    if pid == 0:
        try:
            linux.set_no_new_privs()
            seccomp.load(Filter.COMMON)
            os.execvp("unshare", ["unshare", "--user", "true"])
        finally:
            os._exit(99)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 1


def test_a_machine_without_a_table_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = os.uname_result(("Linux", "host", "6.1", "#1", "riscv64"))
    monkeypatch.setattr(os, "uname", lambda: machine)
    assert "riscv64" in str(seccomp.missing())
    assert seccomp.choose(strict=False, set_id=True) is None


def test_a_kernel_without_filters_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux, "can_filter_calls", lambda: False)
    if os.uname().machine in syscalls.ARCHITECTURES:
        assert "CONFIG_SECCOMP_FILTER" in str(seccomp.missing())


CORE, LIMIT, OLD = syscalls.RLIMIT_CORE, 0x7F00_0000_1000, 0x7F00_0000_0000


@pytest.mark.parametrize("machine", syscalls.ARCHITECTURES)
@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("setrlimit", (CORE, LIMIT), seccomp.REFUSE),
        ("setrlimit", (CORE | HIGH, LIMIT), seccomp.REFUSE),
        ("setrlimit", (CORE + 1, LIMIT), seccomp.ALLOW),
        ("prlimit64", (0, CORE, 0, LIMIT), seccomp.ALLOW),
        ("prlimit64", (77, CORE, LIMIT, 0), seccomp.REFUSE),
        # Both halves of a pointer count.
        ("prlimit64", (0, CORE | HIGH, HIGH, 0), seccomp.REFUSE),
        ("prlimit64", (0, CORE, 8, 0), seccomp.REFUSE),
        ("prlimit64", (0, CORE, LIMIT, OLD), seccomp.REFUSE | EPERM),
        ("prlimit64", (0, CORE, LIMIT, 8), seccomp.REFUSE | EPERM),
        ("prlimit64", (0, CORE, HIGH, HIGH), seccomp.REFUSE | EPERM),
        ("prlimit64", (0, CORE + 3, LIMIT, OLD), seccomp.ALLOW),
    ],
)
def test_a_core_limit_stays_what_it_was(
    machine: str, name: str, arguments: tuple[int, ...], answer: int
) -> None:
    number = syscalls.number(name, machine)
    assert number is not None
    for kind in Filter:
        program = seccomp.assemble(kind, machine)
        assert bpf.run(program, syscalls.ARCHITECTURES[machine], number, arguments) == answer
