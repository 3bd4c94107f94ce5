# SPDX-License-Identifier: Apache-2.0
"""Tar streams that are made to be kept."""

from __future__ import annotations

import io
import tarfile
import tracemalloc

import pytest

from sandboxd.errors import InvalidRequest
from sandboxd.workspace.tar_stream import MAX_EXTENDED_BYTES, TarStream


def extended(records: bytes) -> bytes:
    """A pax header with these records."""
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, len(records)
    return header.tobuf(tarfile.USTAR_FORMAT) + records + bytes(-len(records) % tarfile.BLOCKSIZE)


def records(keys: range) -> bytes:
    """One of 12 bytes for each key."""
    return b"".join(b"12 %07d=\n" % key for key in keys)


def test_headers_without_a_member_take_no_memory() -> None:
    """Each may be as large as is taken, and as many as a disk has room for may come."""
    stream = TarStream()
    count = MAX_EXTENDED_BYTES // 12
    tracemalloc.start()
    try:
        for number in range(50):
            header = extended(records(range(number * count, (number + 1) * count)))
            assert list(stream.feed(header)) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * MAX_EXTENDED_BYTES
    with pytest.raises(InvalidRequest, match="breaks off"):
        stream.check_complete()


def test_a_member_has_what_its_headers_say() -> None:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as made:
        info = tarfile.TarInfo("ü" * 200)
        info.pax_headers = {"comment": "any"}
        info.size = 3
        made.addfile(info, io.BytesIO(b"abc"))
    stream = TarStream()
    member, data = stream.feed(written.getvalue())
    assert isinstance(member, tarfile.TarInfo)
    assert (member.name, data) == ("ü" * 200, b"abc")
    stream.check_complete()


def test_sparse_files_of_pax_are_told() -> None:
    stream = TarStream()
    info = tarfile.TarInfo("f")
    header = extended(b"22 GNU.sparse.major=1\n")
    (member,) = stream.feed(header + info.tobuf(tarfile.USTAR_FORMAT))
    assert isinstance(member, tarfile.TarInfo)
    assert member.type == tarfile.GNUTYPE_SPARSE
