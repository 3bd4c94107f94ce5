# SPDX-License-Identifier: Apache-2.0
"""The keys that leave a terminal, in whatever pieces they are read."""

from __future__ import annotations

import pytest

from sandboxd.ctl.terminal import Keys


@pytest.mark.parametrize(
    ("typed", "passed", "is_left"),
    [
        ([b"abc"], b"abc", False),
        ([b"a\x10\x11b"], b"a", True),
        ([b"a\x10", b"\x11"], b"a", True),
        ([b"a\x10", b"b"], b"a\x10b", False),
        ([b"\x10", b"\x10", b"\x11"], b"\x10", True),
        ([b"\x11\x10"], b"\x11", False),
        ([b"\x03\x04"], b"\x03\x04", False),
    ],
)
def test_keys(typed: list[bytes], passed: bytes, is_left: bool) -> None:
    keys, seen, left = Keys(), b"", False
    for piece in typed:
        data, left = keys.filter(piece)
        seen += data
    assert (seen, left) == (passed, is_left)
