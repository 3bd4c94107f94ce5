# SPDX-License-Identifier: Apache-2.0
"""JSON objects as bytes."""

from __future__ import annotations

import pytest

from sandboxd.osutil import objects


def test_what_was_encoded_is_decoded() -> None:
    assert objects.decode(objects.encode({"a": [1, None]})) == {"a": [1, None]}


@pytest.mark.parametrize("data", [b"", b"\0\0", b"[]", b"1", b"\xff", b"[" * 4096])
def test_what_is_no_object_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the reader says what is wrong in its own words
        objects.decode(data)
