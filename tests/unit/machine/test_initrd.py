# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import stat
from collections.abc import Iterator

import pytest

from tests.machine.initrd import entry, load_order

DEPENDENCIES = """\
kernel/fs/quota/quota_v2.ko.xz: kernel/fs/quota/quota_tree.ko.xz
kernel/fs/quota/quota_tree.ko.xz:
kernel/drivers/a-b.ko.xz: kernel/c.ko.xz kernel/fs/quota/quota_tree.ko.xz
kernel/c.ko.xz: kernel/fs/quota/quota_tree.ko.xz
"""


def test_a_module_comes_after_what_it_needs() -> None:
    assert load_order(DEPENDENCIES, ("a_b", "quota_v2")) == [
        "kernel/fs/quota/quota_tree.ko.xz",
        "kernel/c.ko.xz",
        "kernel/drivers/a-b.ko.xz",
        "kernel/fs/quota/quota_v2.ko.xz",
    ]


def test_an_unknown_module_is_an_error() -> None:
    with pytest.raises(KeyError):
        load_order(DEPENDENCIES, ("nothing",))


def test_an_archive_reads_back() -> None:
    members = [("dir", stat.S_IFDIR | 0o755, b""), ("dir/odd", stat.S_IFREG | 0o644, b"12345")]
    archive = b"".join(entry(*member) for member in members)
    assert list(read(archive)) == members


def read(archive: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Read cpio as its manual page tells: hexadecimal fields, everything padded to four bytes."""
    at = 0
    while at < len(archive):
        assert archive[at : at + 6] == b"070701"
        fields = [int(archive[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = archive[at + 110 : at + 110 + name_size]
        start = (at + 110 + name_size + 3) // 4 * 4
        yield name.rstrip(b"\0").decode(), mode, archive[start : start + size]
        at = (start + size + 3) // 4 * 4
