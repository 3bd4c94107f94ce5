# SPDX-License-Identifier: Apache-2.0
"""The less room, the sooner the next look; never so often that looking is all there is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.supervisor import pace

MIB = 1 << 20


@given(st.integers(0, 1 << 40), st.floats(0, 1e11), st.floats(0, 1), st.booleans(), st.booleans())
def test_it_is_between_ten_and_a_hundred_times_a_second(
    room: int, speed: float, took: float, is_busy: bool, begins: bool
) -> None:
    period = pace.of_running(room, speed, took, is_busy=is_busy, begins=begins)
    assert 0.01 <= period <= 0.1


@given(st.integers(0, 512 * MIB))
def test_a_gib_a_second_passes_the_limit_by_little(room: int) -> None:
    period = pace.of_running(room, 0.0, 0.0, is_busy=False, begins=False)
    assert period * (1 << 30) <= room + 11 * MIB


def test_busy_ones_and_beginners_are_looked_at_often() -> None:
    assert pace.of_running(1 << 40, 0.0, 0.0, is_busy=True, begins=False) == 0.02
    assert pace.of_running(1 << 40, 0.0, 0.0, is_busy=False, begins=True) == 0.01


@pytest.mark.parametrize(("debt", "period"), [(0.0, 0.002), (0.05, 0.05), (9.0, 0.1)])
def test_a_stopped_one_waits_for_its_debt(debt: float, period: float) -> None:
    assert pace.of_stopped(debt) == period


@given(st.floats(0, 1e6))
def test_the_grid_is_never_later(due: float) -> None:
    assert due - 0.0101 <= pace.on_grid(due) <= due * (1 + 1e-12)
