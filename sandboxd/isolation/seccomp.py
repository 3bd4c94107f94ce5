# SPDX-License-Identifier: Apache-2.0
"""The system-call filter: classic BPF assembled here, loaded just before the exec.

The filter lists refused calls, and answers ENOSYS for calls newer than the list. Of an argument
only the low 32 bits are compared, as the kernel does for each argument concerned: an int, an
unsigned int, or the flags of clone and unshare, whose high half is cut off or refused. Of the
pointers of prlimit64 both halves are read.

Source: linux/seccomp.h, linux/filter.h; seccomp(2).
"""

from __future__ import annotations

import enum
import errno
import os
import struct
from collections.abc import Iterable

from sandboxd.isolation import syscalls as table
from sandboxd.osutil import linux

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
REFUSE = 0x00050000

# struct seccomp_data; both machines are little-endian.
_NUMBER_OFFSET = 0
_ARCHITECTURE_OFFSET = 4
_ARGUMENTS_OFFSET = 16

# linux/bpf_common.h
_LOAD = 0x20
_AND = 0x54
_JUMP_IF_EQUAL = 0x15
_JUMP_IF_GREATER = 0x25
_JUMP_IF_ANY_BIT = 0x45
_RETURN = 0x06

_Code = list[tuple[int, int, int, int]]


class Filter(enum.StrEnum):
    """The filters, by level, and without set-id bits where files stay on the host."""

    COMMON = "common"
    STRICT = "strict"
    COMMON_NO_SET_ID = "common-no-set-id"
    STRICT_NO_SET_ID = "strict-no-set-id"

    @property
    def is_strict(self) -> bool:
        """Whether what only strict refuses is refused."""
        return self in (Filter.STRICT, Filter.STRICT_NO_SET_ID)

    @property
    def has_no_set_id(self) -> bool:
        """Whether set-user-ID and set-group-ID bits are refused."""
        return self in (Filter.COMMON_NO_SET_ID, Filter.STRICT_NO_SET_ID)


def assemble(kind: Filter, machine: str) -> bytes:
    """Return the filter for a machine of `table.ARCHITECTURES`: an array of struct sock_filter."""
    strict = kind.is_strict
    code = [
        _load(_ARCHITECTURE_OFFSET),
        (_JUMP_IF_EQUAL, 1, 0, table.ARCHITECTURES[machine]),
        _answer(KILL_PROCESS),
        _load(_NUMBER_OFFSET),
        (_JUMP_IF_GREATER, 0, 1, table.LAST_REVIEWED),
        _refuse(errno.ENOSYS),
    ]
    rules = {
        # The most frequent calls first: the kernel's list of calls always allowed has none that are
        # judged by arguments.
        "mmap": _refuse_bits(3, table.MAP_HUGETLB, errno.ENOMEM),
        "ioctl": _refuse_values(1, table.IOCTLS, errno.EPERM),
        "setsockopt": _socket_options(),
        "memfd_create": _refuse_bits(1, table.MFD_HUGETLB, errno.ENOMEM),
        "shmget": _refuse_bits(2, table.SHM_HUGETLB, errno.ENOMEM),
        "clone": _refuse_bits(0, table.NAMESPACE_FLAGS & ~0xFF, errno.EPERM),
        "unshare": _refuse_bits(0, table.NAMESPACE_FLAGS, errno.EPERM),
        "socket": _sockets(strict=strict),
        "socketpair": _sockets(strict=strict),
        "setrlimit": [_argument(0), *_when(table.RLIMIT_CORE, [_PRETEND]), _answer(ALLOW)],
        "prlimit64": _core_limit(),
        "personality": _allow_values(0, table.PERSONALITIES, errno.EPERM),
    }
    refused = table.REFUSED | (table.REFUSED_STRICT if strict else {})
    rules |= {name: [_refuse(number)] for name, number in refused.items()}
    if kind.has_no_set_id:
        rules |= _no_set_id()
    for name, rule in rules.items():
        number = table.number(name, machine)
        if number is not None:
            code += _when(number, rule)
    code.append(_answer(ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def missing() -> str | None:
    """Return, in words, why this host has no filters; None if filters can be loaded."""
    machine = os.uname().machine
    if machine not in table.ARCHITECTURES:
        return f"system-call filter: sandboxd has none for {machine}"
    if not linux.can_filter_calls():
        return "system-call filter: this kernel has none (CONFIG_SECCOMP_FILTER)"
    return None


def choose(*, strict: bool, set_id: bool) -> Filter | None:
    """Return the filter; None on a host without. set_id: whether set-id bits may be made."""
    if missing() is not None:
        return None
    wanted = (strict, not set_id)
    return next(kind for kind in Filter if (kind.is_strict, kind.has_no_set_id) == wanted)


def load(kind: Filter) -> None:
    """Put this process under the filter for good; no_new_privs must be set. Raises OSError."""
    linux.filter_calls(_PROGRAMS[kind])


def _load(offset: int) -> tuple[int, int, int, int]:
    return (_LOAD, 0, 0, offset)


def _argument(index: int) -> tuple[int, int, int, int]:
    """Load the low half of an argument."""
    return _load(_ARGUMENTS_OFFSET + 8 * index)


def _answer(action: int) -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, action)


def _refuse(number: int) -> tuple[int, int, int, int]:
    return _answer(REFUSE | number)


# An error of 0: the kernel skips the call, and the call reports success.
_PRETEND = _refuse(0)


def _when(value: int, then: _Code) -> _Code:
    """Run `then` if the loaded value is `value`; every path of `then` must end in an answer."""
    return [(_JUMP_IF_EQUAL, 0, len(then), value), *then]


def _refuse_values(index: int, values: Iterable[int], number: int) -> _Code:
    code = [_argument(index)]
    for value in values:
        code += _when(value, [_refuse(number)])
    return [*code, _answer(ALLOW)]


def _allow_values(index: int, values: Iterable[int], number: int) -> _Code:
    code = [_argument(index)]
    for value in values:
        code += _when(value, [_answer(ALLOW)])
    return [*code, _refuse(number)]


def _refuse_bits(index: int, bits: int, number: int) -> _Code:
    return [_argument(index), (_JUMP_IF_ANY_BIT, 0, 1, bits), _refuse(number), _answer(ALLOW)]


def _no_set_id() -> dict[str, _Code]:
    """Return rules against set-id bits.

    The mode of openat2 lies in memory: programs fall back to openat, as before Linux 5.6.
    """
    bits, number = table.SET_ID, errno.EPERM
    rules = {name: _refuse_bits(at, bits, number) for name, at in table.CHANGES_MODE.items()}
    for name, at in table.OPENS.items():
        makes = _refuse_bits(at, bits, number)
        code = [_argument(at - 1), (_JUMP_IF_ANY_BIT, 0, len(makes), table.OPEN_MAKES)]
        rules[name] = [*code, *makes, _answer(ALLOW)]
    return {**rules, "openat2": [_refuse(errno.ENOSYS)]}


def _sockets(*, strict: bool) -> _Code:
    """Filter socket and socketpair by family, type and protocol."""
    plain = [_answer(ALLOW)]
    code = [_argument(0), *_when(table.AF_UNIX, plain)]
    inet = _tcp_and_udp() if strict else plain
    code += _when(table.AF_INET, inet)
    code += _when(table.AF_INET6, inet)
    return [*code, _refuse(errno.EAFNOSUPPORT)]


def _core_limit() -> _Code:
    """Filter prlimit64, which also reads limits: by resource, new limit and old limit.

    A call that sets the core limit, to 0 in every known program, does nothing and succeeds: there
    are no core files. A call that also asks for the old limit would get no answer, and is refused.
    """
    new, old = _ARGUMENTS_OFFSET + 8 * 2, _ARGUMENTS_OFFSET + 8 * 3
    asks_old = [_load(old), *_unless_zero(_refuse(errno.EPERM)),
                _load(old + 4), *_unless_zero(_refuse(errno.EPERM)), _PRETEND]  # fmt: skip
    reads = [_load(new), (_JUMP_IF_EQUAL, 0, 3, 0), _load(new + 4), (_JUMP_IF_EQUAL, 0, 1, 0),
             _answer(ALLOW), *asks_old]  # fmt: skip
    return [_argument(1), *_when(table.RLIMIT_CORE, reads), _answer(ALLOW)]


def _unless_zero(then: tuple[int, int, int, int]) -> _Code:
    return [(_JUMP_IF_EQUAL, 1, 0, 0), then]


def _socket_options() -> _Code:
    """Filter setsockopt by level and name."""
    code = [_argument(1)]
    for level, names in table.SOCKET_OPTIONS.items():
        code += _when(level, _refuse_values(2, names, errno.EPERM))
    return [*code, _answer(ALLOW)]


def _tcp_and_udp() -> _Code:
    protocols = _allow_values(2, table.INET_PROTOCOLS, errno.EPROTONOSUPPORT)
    code = [_argument(1), (_AND, 0, 0, table.SOCK_TYPE_MASK)]
    for kind in table.INET_TYPES:
        code += _when(kind, protocols)
    return [*code, _refuse(errno.EPROTONOSUPPORT)]


# Assembled once, in the spawner; shims and their children inherit the result by fork.
_PROGRAMS = (
    {kind: assemble(kind, os.uname().machine) for kind in Filter}
    if os.uname().machine in table.ARCHITECTURES
    else {}
)
