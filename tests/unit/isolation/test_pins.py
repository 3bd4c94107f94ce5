# SPDX-License-Identifier: Apache-2.0
"""Which namespaces a sandbox has of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.isolation import pins


@pytest.mark.parametrize(
    ("isolation", "network", "wanted"),
    [("basic", "host", ()),
     ("none", "host", ()),
     ("basic", "loopback", ("net",)),
     ("basic", "none", ("net",)),
     ("standard", "host", ("ipc", "uts", "mnt")),
     ("standard", "loopback", ("net", "ipc", "uts", "mnt")),
     ("strict", "none", ("net", "ipc", "uts", "mnt"))],
)  # fmt: skip
def test_kinds_and_the_root_last(isolation: str, network: str, wanted: tuple[str, ...]) -> None:
    assert pins.kinds(isolation, network) == wanted


def test_plain_files_are_no_pins(tmp_path: Path) -> None:
    assert not pins.are_complete(str(tmp_path / "none"), ("net",))
    (tmp_path / "net").write_text("")
    assert not pins.are_complete(str(tmp_path), ("net",))
    (tmp_path / "net").unlink()
    (tmp_path / "net").symlink_to("/proc/self/ns/net")
    assert pins.are_complete(str(tmp_path), ("net",))
    assert not pins.are_complete(str(tmp_path), ("net", "mnt"))


def test_removing_what_is_not_there(tmp_path: Path) -> None:
    pins.remove(str(tmp_path / "none"))
    pins.remove_others(str(tmp_path / "none"), ())
    pins.remove_all(str(tmp_path / "none"))
