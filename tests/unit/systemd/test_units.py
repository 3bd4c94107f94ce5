# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from sandboxd.systemd import units


@pytest.mark.parametrize(
    ("unit", "path"),
    [
        ("sandboxd.slice", "sandboxd.slice"),
        ("sandboxd-3f.slice", "sandboxd.slice/sandboxd-3f.slice"),
        (
            "sandboxd_ab-3f-x.slice",
            "sandboxd_ab.slice/sandboxd_ab-3f.slice/sandboxd_ab-3f-x.slice",
        ),
    ],
)
def test_each_dash_nests(unit: str, path: str) -> None:
    assert units.slice_path(unit) == path


def test_own_and_foreign_descriptions() -> None:
    mine = units.describe("abcdefghijkl", "sandbox x")
    assert not units.is_foreign(mine, "abcdefghijkl")
    assert units.is_foreign(mine, "abcdefghijkm")
    assert units.is_foreign(mine, "abcdefghijk")
    # What systemd implied has a description of systemd's.
    assert not units.is_foreign("Slice /sandboxd/3f", "abcdefghijkl")
