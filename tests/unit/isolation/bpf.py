# SPDX-License-Identifier: Apache-2.0
"""An interpreter of classic BPF over a system call, written from linux/filter.h alone."""

from __future__ import annotations

import struct

_LOAD, _AND, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x25, 0x45, 0x06
_MAX_INSTRUCTIONS = 4096


def run(program: bytes, architecture: int, number: int, arguments: tuple[int, ...]) -> int:
    """The program's answer for one call; arguments are taken modulo 2**64."""
    words = [argument % (1 << 64) for argument in (*arguments, *[0] * 6)[:6]]
    data = struct.pack("=iIQ6Q", number, architecture, 0, *words)
    code = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    assert len(code) <= _MAX_INSTRUCTIONS
    accumulator, at = 0, 0
    while True:
        # The kernel's checker wants every way to end in an answer: running off is a bug.
        operation, if_true, if_false, constant = code[at]
        at += 1
        if operation == _LOAD:
            assert constant % 4 == 0
            (accumulator,) = struct.unpack_from("=I", data, constant)
        elif operation == _AND:
            accumulator &= constant
        elif operation == _RETURN:
            return int(constant)
        else:
            holds = {
                _EQUAL: accumulator == constant,
                _GREATER: accumulator > constant,
                _ANY_BIT: bool(accumulator & constant),
            }[operation]
            at += if_true if holds else if_false
