# SPDX-License-Identifier: Apache-2.0
"""Whoever holds little of a sum is not refused for what others hold, however many those are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.core.fair import FairSum, Holdings
from sandboxd.errors import QuotaExceeded

SUM = FairSum(total=2048, little=8, most=512)


def holdings(of: FairSum = SUM) -> Holdings:
    return Holdings(of, "things", verb="have another thing", hint="give one back")


def take_all(held: Holdings, uid: int) -> int:
    """As many as the caller gets, one by one."""
    while True:
        try:
            held.take(uid)
        except QuotaExceeded:
            return held._held[uid]


def test_one_alone_has_most_and_the_next_half_of_what_is_left() -> None:
    held = holdings()
    assert [take_all(held, uid) for uid in (1000, 1001, 1002)] == [512, 256, 128]


def test_greedy_callers_leave_what_is_little_to_a_hundred_others() -> None:
    held = holdings()
    greedy = [take_all(held, uid) for uid in range(1000, 1020)]
    assert min(greedy) == SUM.little
    for uid in range(2000, 2100):
        assert take_all(held, uid) == SUM.little


def test_root_and_others_do_not_keep_each_other_out() -> None:
    held = holdings()
    assert take_all(held, 0) == SUM.total
    assert take_all(held, 1000) == SUM.most
    held.give_back(0)
    held.take(0)


def test_a_refusal_tells_what_is_the_callers_own() -> None:
    held = holdings(FairSum(total=16, little=1, most=4))
    held.take(1000, 3)
    with pytest.raises(QuotaExceeded, match="cannot have another thing: uid 1000 has 3") as caught:
        held.take(1000, 2)
    assert caught.value.details == {"quota": "things", "maximum": 4, "used": 3, "asked": 2}


def test_what_is_given_back_is_there_again() -> None:
    held = holdings(FairSum(total=4, little=1, most=1))
    with held.one(1000, "a"), pytest.raises(QuotaExceeded):
        held.take(1000)
    with held.one(1000, "a"):
        pass
    assert held._held[1000] == 0


def test_one_part_is_not_all_that_a_caller_may_have() -> None:
    held = Holdings(SUM, "things", verb="have one", hint="wait", most_of_part=1)
    with held.one(0, "a"), held.one(1000, "a"):
        with pytest.raises(QuotaExceeded, match="1 things of a"), held.one(1000, "a"):
            pass
        with held.one(1000, "b"):
            assert held._held[1000] == 2
    assert held._held[1000] == 0


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans(), st.integers(1, 9)), max_size=200))
def test_the_sum_holds_and_what_is_little_is_to_be_had(
    asked: list[tuple[int, bool, int]],
) -> None:
    of = FairSum(total=640, little=8, most=200)
    held, have = holdings(of), dict.fromkeys(range(1, 41), 0)
    for uid, gives_back, size in asked:
        if gives_back:
            held.give_back(uid, have[uid])
            have[uid] = 0
            continue
        # Forty callers with eight each are half of the sum.
        must = have[uid] + size <= of.little
        try:
            held.take(uid, size)
        except QuotaExceeded:
            assert not must
        else:
            have[uid] += size
        assert sum(have.values()) <= of.total
        assert {uid: held._held[uid] for uid in have} == have
