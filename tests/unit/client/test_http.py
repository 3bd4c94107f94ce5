# SPDX-License-Identifier: Apache-2.0
"""HTTP as bytes: an answer in whatever pieces, and nothing strange is taken for one."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.client.http import (
    MAX_HEAD_BYTES,
    AnswerParser,
    Ended,
    ProtocolError,
    encode_query,
    quote,
    request_head,
)

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\nX-A:  b \r\n\r\nhello world"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\nTrailer: x\r\n\r\n"
)
UNTIL_CLOSE = b"HTTP/1.0 200 OK\r\n\r\nhello world"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN


def parse(pieces: list[bytes]) -> AnswerParser:
    parser = AnswerParser()
    for piece in pieces:
        if piece:
            parser.feed(piece)
    if not parser.is_complete:
        parser.feed(b"")
    return parser


@given(
    answer=st.sampled_from([PLAIN, CHUNKED, UNTIL_CLOSE, INTERIM]),
    cuts=st.lists(st.integers(0, 120), max_size=8),
)
def test_an_answer_in_any_pieces(answer: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(answer)]
    parser = parse([answer[a:b] for a, b in itertools.pairwise(edges)])
    assert (parser.status, parser.take()) == (200, b"hello world")
    assert parser.take() == b""


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED])
def test_an_answer_that_breaks_off(answer: bytes) -> None:
    for end in range(len(answer)):
        with pytest.raises(Ended):
            parse([answer[:end]])


def test_headers_are_found_in_lower_case() -> None:
    assert parse([PLAIN]).headers == {"content-length": "11", "x-a": "b"}


@pytest.mark.parametrize("head", [b"HTTP/1.1 204 No\r\n\r\n", b"HTTP/1.1 304 No\r\nX: y\r\n\r\n"])
def test_an_answer_without_a_body(head: bytes) -> None:
    parser = AnswerParser()
    parser.feed(head)
    assert parser.is_complete


def test_head_has_no_body() -> None:
    parser = AnswerParser(has_no_body=True)
    parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n")
    assert parser.is_complete


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1e3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 9000,
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * (MAX_HEAD_BYTES + 1),
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        AnswerParser().feed(data)


@given(st.binary(max_size=200))
def test_garbage_never_raises_anything_else(data: bytes) -> None:
    try:
        parse([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + data])
    except ProtocolError:
        return


def test_paths_and_queries_are_encoded() -> None:
    assert quote("a b/ü?") == "a%20b%2F%C3%BC%3F"
    assert quote("a/b", safe="/") == "a/b"
    assert quote("\udcff") == "%FF"
    assert encode_query({"a&b": "c=d", "n": 1}) == "?a%26b=c%3Dd&n=1"
    assert encode_query({}) == ""


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "a\rb"])
def test_a_header_cannot_make_another(value: str) -> None:
    with pytest.raises(ValueError, match="line break"):
        request_head("GET", "/", {"X": value})
