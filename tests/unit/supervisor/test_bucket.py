# SPDX-License-Identifier: Apache-2.0
"""The average is exact, bursts are bounded, debts are paid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.protocol.supervision import Caps
from sandboxd.supervisor.bucket import TokenBucket
from sandboxd.supervisor.throttle import Gains, Throttle


def run(bucket: TokenBucket, *, seconds: float, tick: float, speed: float) -> float:
    """Take at `speed` whenever allowed, looked at each `tick`; what was taken in all."""
    now = taken = 0.0
    while now < seconds:
        used = 0.0 if bucket.is_overdrawn else speed * tick
        now += tick
        bucket.advance(now, used)
        taken += used
    return taken


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("tick", [0.01, 0.02, 0.05])
def test_the_average_is_the_rate(rate: float, tick: float) -> None:
    taken = run(TokenBucket(rate, 0.0), seconds=20, tick=tick, speed=2.0)
    # A burst at the beginning, and one tick's use that is still owed at the end.
    assert rate * 20 <= taken + 2.0 * tick
    assert taken <= rate * 20 + rate * 0.1 + 2.0 * tick


def test_a_debt_tells_how_long_it_lasts() -> None:
    bucket = TokenBucket(2.0, 0.0)
    bucket.advance(0.0, bucket.capacity + 1.0)
    assert bucket.seconds_of_debt == pytest.approx(0.5)
    bucket.advance(0.5, 0.0)
    assert bucket.seconds_of_debt == 0


def test_a_new_rate_keeps_a_debt_as_long() -> None:
    bucket = TokenBucket(10.0, 0.0)
    bucket.advance(0.0, 6.0)
    before = bucket.seconds_of_debt
    bucket.set_rate(100.0)
    assert bucket.seconds_of_debt == pytest.approx(before)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 10)), max_size=50))
def test_it_never_holds_more_than_a_burst(steps: list[tuple[float, float]]) -> None:
    bucket, now = TokenBucket(3.0, 0.0), 0.0
    for passed, taken in steps:
        now += passed
        bucket.advance(now, taken)
        assert bucket.level <= bucket.capacity


def test_a_clock_that_steps_back_fills_nothing() -> None:
    bucket = TokenBucket(1.0, 10.0)
    bucket.advance(10.0, 0.1)
    bucket.advance(5.0, 0.0)
    assert bucket.level == pytest.approx(0.0)


def test_as_many_processors_as_there_are_is_no_limit() -> None:
    throttle = Throttle(Caps(cpus=4.0), 0.0, processors=4)
    throttle.advance(1.0, Gains(cpu_seconds=100.0))
    assert throttle.seconds_of_debt == 0
    throttle.set_caps(Caps(cpus=3.5), 1.0)
    throttle.advance(1.0, Gains(cpu_seconds=100.0))
    assert throttle.seconds_of_debt > 0


def test_each_direction_of_io_has_its_own_bucket() -> None:
    caps = Caps(io_read_bytes_per_second=100, io_write_bytes_per_second=1000)
    throttle = Throttle(caps, 0.0, processors=1)
    throttle.advance(0.0, Gains(io_written=50))
    assert throttle.seconds_of_debt == 0
    throttle.advance(0.0, Gains(io_read=20))
    assert throttle.seconds_of_debt == pytest.approx(0.1)
