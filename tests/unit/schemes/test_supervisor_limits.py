# SPDX-License-Identifier: Apache-2.0
"""What stands behind a supervisor on each process, by what the supervisor can do."""

from __future__ import annotations

import resource
from dataclasses import replace

import pytest

from sandboxd.core.model import EnforcedBy
from sandboxd.schemes import supervisor_limits
from sandboxd.schemes.supervisor_limits import SupervisorFeatures
from tests.unit.values import LIMITS, an_execution

ABLE = SupervisorFeatures(is_supervised=True, has_own_uids=True, measures_exactly=True)
NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def test_nothing_bounds_what_is_only_reserved_where_the_sum_is_measured() -> None:
    chosen = supervisor_limits.rlimits(ABLE, LIMITS, address_space_bytes=None)
    assert chosen["RLIMIT_DATA"] == chosen["RLIMIT_AS"] == NO_LIMIT
    assert supervisor_limits.caps(ABLE, LIMITS).data_bytes is None
    chosen = supervisor_limits.rlimits(ABLE, LIMITS, address_space_bytes=1 << 36)
    assert chosen["RLIMIT_AS"] == (1 << 36, 1 << 36)


@pytest.mark.parametrize(
    ("features", "share"),
    [
        (replace(ABLE, measures_exactly=False), 4),
        (SupervisorFeatures(is_supervised=False, has_own_uids=True), 1),
    ],
)
def test_data_of_each_process_is_bounded_where_it_is_not(
    features: SupervisorFeatures, share: int
) -> None:
    soft, hard = supervisor_limits.rlimits(features, LIMITS, address_space_bytes=None)[
        "RLIMIT_DATA"
    ]
    assert soft == hard == LIMITS.memory_bytes * share + (0 if share == 1 else 1 << 30)


def test_a_sum_with_shared_pages_in_it_is_advisory() -> None:
    detail = supervisor_limits.enforcement(replace(ABLE, measures_exactly=False))[
        "memory_bytes"
    ].detail
    assert detail.startswith("advisory: ")
    assert "CAP_SYS_PTRACE" in detail
    assert not supervisor_limits.enforcement(ABLE)["memory_bytes"].detail.startswith("advisory")


@pytest.mark.parametrize("is_supervised", [False, True])
def test_nobody_holds_a_weight_without_cgroups(is_supervised: bool) -> None:
    features = replace(ABLE, is_supervised=is_supervised)
    held = supervisor_limits.enforcement(features)["cpu_weight"]
    assert held.by is EnforcedBy.NONE
    assert held.detail.startswith("only cpu.weight of a cgroup holds it")
    own = replace(an_execution(), own_limits=frozenset({"cpus", "cpu_weight"}))
    assert supervisor_limits.own_caps(ABLE, own, LIMITS).cpus == LIMITS.cpus
