# SPDX-License-Identifier: Apache-2.0
"""Nothing grows with the number of executions, without cgroups."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.flat import stay_flat


@pytest.mark.timeout(7200)
@pytest.mark.usefixtures("requires_root")
def test_a_daemon_stays_flat_without_cgroups(soak_count: Callable[[int], int]) -> None:
    stay_flat("off", soak_count(5000))
