# SPDX-License-Identifier: Apache-2.0
"""What is encoded is decoded, and nothing else is."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.protocol.codec import Codec, Kinds, Malformed


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Inner:
    FORMER_NAMES: ClassVar[Mapping[str, str]] = {"size": "size_bytes"}
    size_bytes: int
    added_later: str | None = None


@dataclass(frozen=True, slots=True)
class Outer:
    name: str
    seconds: float
    is_good: bool
    colour: Colour
    inner: Inner | None
    words: tuple[str, ...]
    pairs: Mapping[str, tuple[int, int]]
    inners: tuple[Inner, ...]


CODEC = Codec(Outer)
KINDS: Kinds[Outer | Inner] = Kinds("op", {"outer": Outer, "inner": Inner})
INNERS = st.builds(Inner, st.integers(), st.none() | st.text())
OUTERS = st.builds(
    Outer,
    name=st.text(),
    seconds=st.floats(allow_nan=False, allow_infinity=False),
    is_good=st.booleans(),
    colour=st.sampled_from(Colour),
    inner=st.none() | INNERS,
    words=st.lists(st.text()).map(tuple),
    pairs=st.dictionaries(st.text(), st.tuples(st.integers(), st.integers())),
    inners=st.lists(INNERS).map(tuple),
)
GOOD: dict[str, Any] = {
    "name": "a", "seconds": 1.5, "is_good": True, "colour": "red", "inner": {"size_bytes": 3},
    "words": ["x"], "pairs": {"p": [1, 2]}, "inners": [{"size_bytes": 4, "added_later": "z"}],
}  # fmt: skip


@given(OUTERS)
def test_what_is_encoded_is_decoded(message: Outer) -> None:
    assert CODEC.decode(CODEC.encode(message)) == message
    assert KINDS.decode(KINDS.encode(message)) == message


@given(INNERS | OUTERS)
def test_a_message_is_told_by_its_kind(message: Inner | Outer) -> None:
    assert type(KINDS.decode(KINDS.encode(message))) is type(message)


def test_bytes_that_are_no_text_go_through() -> None:
    """Arguments and paths may hold any byte (os.fsdecode)."""
    message = CODEC.from_object({**GOOD, "name": "\udcff"})
    assert CODEC.decode(CODEC.encode(message)) == message


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": None}, "Outer.name: str wanted, not null"),
        ({"name": 3}, "Outer.name: str wanted, not 3"),
        ({"seconds": "1"}, 'Outer.seconds: float wanted, not "1"'),
        ({"seconds": True}, "Outer.seconds: float wanted, not true"),
        ({"seconds": float("nan")}, "Outer.seconds: nan is not finite"),
        ({"seconds": 10**400}, "Outer.seconds: float wanted, not 1000"),
        ({"is_good": 1}, "Outer.is_good: bool wanted, not 1"),
        ({"colour": "green"}, 'Outer.colour: one of red, blue wanted, not "green"'),
        ({"colour": []}, "Outer.colour: one of red, blue wanted"),
        ({"inner": []}, "Outer.inner: an object wanted"),
        ({"inner": {"size_bytes": True}}, "Outer.inner.size_bytes: int wanted, not true"),
        ({"inner": {"size_bytes": 1.0}}, "Outer.inner.size_bytes: int wanted, not 1.0"),
        ({"inner": {}}, "Outer.inner: no size_bytes"),
        ({"inner": {"size": 1, "size_bytes": 1}}, "Outer.inner: size_bytes under two names"),
        ({"words": "x"}, 'Outer.words: an array wanted, not "x"'),
        ({"words": ["x", 1]}, r"Outer.words\[\]: str wanted, not 1"),
        ({"pairs": {"p": [1]}}, r"Outer.pairs\[\]: 1 values, not 2"),
        ({"pairs": {"p": [1, "2"]}}, r"Outer.pairs\[\]\[\]: int wanted"),
        ({"pairs": []}, "Outer.pairs: an object wanted"),
        ({"further": 1}, "Outer: unknown key 'further'"),
    ],
)
def test_anything_else_is_malformed(change: dict[str, Any], text: str) -> None:
    CODEC.from_object(GOOD)
    with pytest.raises(Malformed, match=text):
        CODEC.decode(json.dumps({**GOOD, **change}).encode())


@pytest.mark.parametrize("key", GOOD)
def test_every_key_must_be_there(key: str) -> None:
    with pytest.raises(Malformed, match=f"Outer: no {key}"):
        CODEC.from_object({name: value for name, value in GOOD.items() if name != key})


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 4096, b'{"op": []}', b"{}"])
def test_what_is_no_object_of_a_known_kind(data: bytes) -> None:
    for codec in (CODEC, KINDS):
        with pytest.raises(Malformed, match="cannot read"):
            codec.decode(data)


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*GOOD, "size"]), inner),
))  # fmt: skip
def test_nothing_but_malformed_is_raised(value: object) -> None:
    for key in GOOD:
        try:
            message = CODEC.decode(json.dumps({**GOOD, key: value}).encode())
        except Malformed:
            continue
        assert CODEC.decode(CODEC.encode(message)) == message


def test_former_names_and_fields_added_later() -> None:
    inner = Codec(Inner)
    assert inner.decode(b'{"size": 7}') == Inner(7)
    assert json.loads(inner.encode(Inner(7))) == {"size_bytes": 7, "added_later": None}


def test_a_field_that_no_message_has() -> None:
    @dataclass(frozen=True, slots=True)
    class Odd:
        data: bytes

    with pytest.raises(TypeError, match="bytes"):
        Codec(Odd)
