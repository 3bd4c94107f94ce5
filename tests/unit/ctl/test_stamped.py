# SPDX-License-Identifier: Apache-2.0
"""Times before lines, wherever pieces end."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from sandboxd.ctl.stamped import Stamped

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
SHOWN = b"2026-01-02T03:04:05.678Z "


def test_each_line_has_the_time_of_its_first_byte() -> None:
    stamped = Stamped()
    later = AT.replace(second=6, microsecond=0)
    assert stamped.lines(b"one\ntw", AT) == SHOWN + b"one\n" + SHOWN + b"tw"
    assert stamped.lines(b"o\n", later) == b"o\n"
    assert stamped.lines(b"\r\n", later) == b"2026-01-02T03:04:06.000Z \r\n"
    assert stamped.lines(b"", AT) == b""
    assert stamped.lines(b"\n\n", None) == b"- \n- \n"


@given(st.lists(st.binary(max_size=6) | st.sampled_from([b"\n", b"a\n", b"\n\nb"])))
def test_pieces_make_no_difference(pieces: list[bytes]) -> None:
    stamped = Stamped()
    cut = b"".join([stamped.lines(piece, AT) for piece in pieces])
    assert cut == Stamped().lines(b"".join(pieces), AT)
