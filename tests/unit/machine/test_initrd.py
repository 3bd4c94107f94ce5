# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machine import recipe
from tests.machine.initrd import entry, load_order, write

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


def test_what_a_kernel_has_built_in_is_not_loaded(tmp_path: Path) -> None:
    modules = tmp_path / "usr/lib/modules/6"
    wanted = (*recipe.BOOT_MODULES, *recipe.ROOT_MODULES)
    built_in, *loadable = (f"kernel/{name.replace('_', '-')}.ko" for name in wanted)
    modules.joinpath("kernel").mkdir(parents=True)
    modules.joinpath("modules.builtin").write_text(f"{built_in}\n")
    modules.joinpath("modules.dep").write_text("".join(f"{path}:\n" for path in loadable))
    for path in loadable:
        (modules / path).write_bytes(b"module")
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "usr/bin/busybox").touch()
    write(tmp_path / "initrd", root=tmp_path, release="6")
    names = [name for name, _, _ in read((tmp_path / "initrd").read_bytes())]
    assert [name for name in names if name.endswith(".ko")] == [
        Path(path).name for path in loadable
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
