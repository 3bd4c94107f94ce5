# SPDX-License-Identifier: Apache-2.0
"""Nothing grows with the number of executions, under systemd."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.flat import stay_flat

FULL_COUNT = 5000


@pytest.mark.timeout(14400)
def test_a_daemon_stays_flat_under_systemd(
    requires_systemd: None, soak_count: Callable[[int], int]
) -> None:
    count = soak_count(FULL_COUNT)
    # Emulated, each takes a second: a short run does with fewer.
    stay_flat("required", count if count >= FULL_COUNT else min(count, 100))
