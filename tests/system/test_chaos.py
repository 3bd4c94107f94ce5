# SPDX-License-Identifier: Apache-2.0
"""Daemon and spawner killed at random moments, under systemd. One round again:
SANDBOXD_CHAOS_SEED=17 pytest tests/system/test_chaos.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.rounds import play

ROUNDS = 100


@pytest.mark.timeout(14400)
def test_nothing_is_lost_under_systemd(
    requires_systemd: None, soak_count: Callable[[int], int]
) -> None:
    rounds = soak_count(ROUNDS)
    # Emulated, a round takes minutes: a short run plays one.
    play("required", rounds if rounds >= ROUNDS else 1)
