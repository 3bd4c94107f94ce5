# SPDX-License-Identifier: Apache-2.0
"""Whose output goes where a disk gets full: who added, by what was added."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from sandboxd.engine.growth import Output, Sizes, allowed_bytes, liable

MIB = 1 << 20
GIB = 1 << 30
ALLOWED = 64 * MIB
ONE, OTHER = 1000, 1001
PLENTY = 1 << 50


def out(name: str, size: int, owner: int = ONE, *, is_open: bool = False) -> Output:
    return Output(name, owner, size, is_open)


def chosen(now: list[Output], before: list[Output], lacking: int = PLENTY) -> tuple[list[str], int]:
    found, missing = liable(now, Sizes.of(before), lacking, lambda _: ALLOWED)
    return [one.execution_id for one in found], missing


def test_who_adds_nothing_loses_nothing() -> None:
    kept = [out("a", 10 * GIB), out("b", GIB, OTHER, is_open=True)]
    assert chosen(kept, kept) == ([], PLENTY)


def test_every_owner_may_add_something() -> None:
    kept = [out("a", 10 * GIB)]
    assert chosen([*kept, out("b", ALLOWED)], kept) == ([], PLENTY)
    assert chosen([*kept, out("b", ALLOWED), out("c", 1)], kept)[0] == ["b"]
    # Of many small ones no more than it takes.
    many = [out(f"{n:02}", ALLOWED // 8) for n in range(10)]
    assert chosen([*kept, *many], kept)[0] == ["09", "08"]


def test_what_grew_most_goes_first_until_there_is_room() -> None:
    before = [out("running", GIB, is_open=True), out("old", 2 * GIB)]
    now = [
        out("running", 2 * GIB, is_open=True),
        out("old", 2 * GIB),
        out("new", GIB // 2),
        out("of another", 3 * GIB, OTHER),
        out("small of another", GIB // 4, OTHER),
    ]
    assert chosen(now, before, 1) == (["of another"], 0)
    assert chosen(now, before, 3 * GIB + 1) == (["of another", "running"], 0)
    everything = ["of another", "running", "new", "small of another"]
    assert chosen(now, before, 5 * GIB) == (everything, GIB // 4)


def test_a_result_of_which_most_was_there_stays() -> None:
    before = [out("long", GIB, is_open=True), out("old", ALLOWED)]
    # While more may come it has its end; what it printed is kept.
    grown = [out("long", GIB + 2 * ALLOWED, is_open=True), out("old", ALLOWED)]
    assert chosen(grown, before, 3 * ALLOWED) == (["long"], ALLOWED)
    ended = [out("long", GIB + 2 * ALLOWED), out("old", ALLOWED)]
    assert chosen(ended, before) == ([], PLENTY)
    # Nor does its owner lose what is small and new for it.
    assert chosen([*ended, out("new", MIB)], before) == ([], PLENTY)
    # With as much growth beside it as all of it is, it goes.
    assert chosen([*ended, out("new", GIB)], before)[0] == ["new"]
    most_is_new = [out("long", 3 * GIB), out("other", GIB), out("old", ALLOWED)]
    assert chosen(most_is_new, before)[0] == ["long"]


def test_what_has_gone_makes_room_for_what_comes() -> None:
    before = [out("old", GIB)]
    assert chosen([out("new", GIB)], before) == ([], PLENTY)
    assert chosen([out("new", GIB), out("more", 2 * ALLOWED)], before)[0] == ["more"]
    assert chosen([out("new", GIB, OTHER)], before)[0] == ["new"]


def test_a_small_disk_allows_less() -> None:
    assert allowed_bytes(GIB, GIB // 2) == ALLOWED
    assert allowed_bytes(40 * MIB, 20 * MIB) == 10 * MIB
    assert allowed_bytes(0, 0) == 0


def test_many_who_add_what_is_allowed_leave_the_floor() -> None:
    """Fifty add at once what each of them may, and somebody else little."""
    floor = GIB
    each = [out(f"{n:02}", ALLOWED, ONE + 1 + n) for n in range(50)]
    now = [*each, out("modest", 3 * MIB)]
    free = 2 * floor - sum(one.size_bytes for one in now)
    assert free < 0
    found, missing = liable(now, Sizes(), 2 * floor - free, partial(allowed_bytes, floor))
    assert free + sum(one.size_bytes for one in found) >= 3 * floor // 2
    assert "modest" not in {one.execution_id for one in found}
    assert missing <= floor // 2
    # What files take of the room makes nobody's share smaller.
    assert liable(each[:8], Sizes(), 2 * floor, partial(allowed_bytes, floor))[0] == []


OUTPUTS = st.dictionaries(
    st.sampled_from("abcdef"), st.tuples(st.integers(0, 20), st.booleans()), max_size=6
)


@given(before=OUTPUTS, now=OUTPUTS, lacking=st.integers(1, 60), allowed=st.integers(0, 10))
def test_no_owner_loses_more_than_it_added(
    before: dict[str, tuple[int, bool]],
    now: dict[str, tuple[int, bool]],
    lacking: int,
    allowed: int,
) -> None:
    # An execution that has ended prints no more, and none takes back what it printed.
    seen = {
        name: (size if is_open else before[name][0], is_open)
        for name, (size, is_open) in now.items()
        if name in before and size >= before[name][0]
    } | {name: one for name, one in now.items() if name not in before}

    def outputs(sizes: dict[str, tuple[int, bool]]) -> list[Output]:
        return [Output(name, ord(name) % 2, *one) for name, one in sizes.items()]

    then = Sizes.of(outputs(before))
    found, missing = liable(outputs(seen), then, lacking, lambda _: allowed)
    for uid in (0, 1):
        grew = Sizes.of(outputs(seen)).of_owner.get(uid, 0) - then.of_owner.get(uid, 0)
        given_up = [one for one in found if one.owner_uid == uid and not one.is_open]
        assert sum(one.size_bytes for one in given_up) <= max(0, grew)
        if grew <= allowed:
            assert not any(one.owner_uid == uid for one in found)
    assert 0 <= missing <= lacking
    assert len(found) == len(set(found))
