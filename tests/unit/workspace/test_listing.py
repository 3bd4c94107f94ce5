# SPDX-License-Identifier: Apache-2.0
"""Listings of trees that are made to be long."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from sandboxd.core.entries import MAX_LISTED_BYTES, Listing
from sandboxd.workspace.home_context import Spot
from sandboxd.workspace.listing import entries_below

NAME = "n" * 250


@pytest.fixture
def far(tmp_path: Path) -> tuple[str, str]:
    """A directory with 1,500 files and its path below another one, of 3,500 bytes."""
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(14):
        os.mkdir(NAME, dir_fd=here)
        below = os.open(NAME, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    for number in range(1500):
        os.close(os.open(str(number), os.O_CREAT, dir_fd=here))
    os.close(here)
    return str(tmp_path), "/".join([NAME] * 14)


def listed(steps: Generator[None, None, Listing]) -> Listing:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Listing = end.value
            return found


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_paths_are_bounded_together(far: tuple[str, str], is_asked_for: bool) -> None:
    """Whether they are long by what was asked for or by what is below."""
    top, path = far
    asked = path.encode() if is_asked_for else b""
    listing = listed(entries_below(Spot(top, asked, asked), 256, 10_000))
    assert listing.truncated
    assert MAX_LISTED_BYTES - 5000 < listing.size_bytes < MAX_LISTED_BYTES + 5000


def test_many_short_paths_are_all_there(far: tuple[str, str]) -> None:
    top, path = far
    listing = listed(entries_below(Spot(f"{top}/{path}", b"", b""), 1, 1500))
    assert (len(listing.entries), listing.truncated) == (1500, False)
