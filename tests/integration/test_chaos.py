# SPDX-License-Identifier: Apache-2.0
"""Daemon and spawner killed at random moments, without cgroups. One round again:
SANDBOXD_CHAOS_SEED=17 pytest tests/integration/test_chaos.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.rounds import play


@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("requires_root")
def test_nothing_is_lost_without_cgroups(soak_count: Callable[[int], int]) -> None:
    play("off", soak_count(100))
