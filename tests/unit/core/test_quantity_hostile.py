# SPDX-License-Identifier: Apache-2.0
"""Quantities from hostile callers: refused at once, and never by another error than ValueError."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.core.quantity import parse_bytes, parse_cpus, parse_seconds

numbers = st.integers() | st.floats() | st.text(alphabet="0123456789.smhdKMG%! ", max_size=80)


@pytest.mark.parametrize("text", ["1" * 63 + "!", "1s" * 30 + "!", "1 " * 31 + "!", "", " "])
def test_a_duration_is_refused_in_no_time(text: str) -> None:
    before = time.process_time()
    with pytest.raises(ValueError, match="not a duration"):
        parse_seconds(text)
    assert time.process_time() - before < 0.1


@pytest.mark.parametrize("digits", [310, 4000])
def test_an_integer_too_large_for_a_float_is_refused(digits: int) -> None:
    for parse in (parse_seconds, parse_cpus):
        with pytest.raises(ValueError, match="at most"):
            parse(10**digits)


def test_a_size_is_never_read_from_a_part_of_its_text() -> None:
    with pytest.raises(ValueError, match="not a size"):
        parse_bytes("1." + "0" * 70 + "G")


@given(numbers)
def test_seconds_and_cpus_are_in_range_or_refused(value: int | float | str) -> None:
    for parse in (parse_seconds, parse_cpus):
        try:
            assert 0 < parse(value) <= 10 * 366 * 86400
        except ValueError:
            continue
