# SPDX-License-Identifier: Apache-2.0
"""Nothing grows with the number of executions, under systemd."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.flat import stay_flat


@pytest.mark.timeout(14400)
def test_a_daemon_stays_flat_under_systemd(
    requires_systemd: None, soak_count: Callable[[int], int]
) -> None:
    stay_flat("required", soak_count(5000))
