# SPDX-License-Identifier: Apache-2.0
"""Defaults, bounds and the budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandboxd.core.model import EnforcedBy, Enforcement, LimitChanges
from sandboxd.core.policy import (
    Budget,
    CallerQuota,
    LimitPolicy,
    TaskBudget,
    TerminalBudget,
    check_required,
)
from sandboxd.errors import (
    CapacityExceeded,
    ConfigError,
    InvalidRequest,
    LimitTooLarge,
    LimitTooSmall,
    LimitUnsupported,
    QuotaExceeded,
)
from tests.unit.values import LIMITS

GIB = 1 << 30
POLICY = LimitPolicy(LIMITS, {"memory_bytes": 4 * GIB, "pids": 1000})


def test_nothing_asked_gives_the_defaults() -> None:
    assert POLICY.for_sandbox(LimitChanges()) == LIMITS


def test_what_is_asked_is_taken_to_the_bound_and_never_clamped() -> None:
    assert POLICY.for_sandbox(LimitChanges(memory_bytes=4 * GIB)).memory_bytes == 4 * GIB
    with pytest.raises(LimitTooLarge, match="maximum is") as caught:
        POLICY.for_sandbox(LimitChanges(memory_bytes=4 * GIB + 1))
    assert caught.value.details["maximum"] == 4 * GIB
    assert "4294967297 (4.0 GiB)" in caught.value.message
    assert "4294967296 (4 GiB)" in caught.value.message
    with pytest.raises(LimitTooLarge, match="pids 1001: this server's maximum is 1000"):
        POLICY.for_sandbox(LimitChanges(pids=1001))
    with pytest.raises(LimitTooLarge, match=r"31536000 \(365 days\): .* is 604800 \(7 days\)"):
        LimitPolicy(LIMITS, {"timeout_seconds": 604800.0}).for_sandbox(
            LimitChanges(timeout_seconds=365 * 86400.0)
        )


def test_memory_below_the_shims_own_need_is_refused() -> None:
    assert POLICY.for_sandbox(LimitChanges(memory_bytes=4 << 20)).memory_bytes == 4 << 20
    with pytest.raises(LimitTooSmall, match="4194304"):
        POLICY.for_sandbox(LimitChanges(memory_bytes=(4 << 20) - 1))


def test_an_execution_gets_at_most_its_sandbox() -> None:
    own = POLICY.for_execution(LIMITS, LimitChanges(cpus=1.0, timeout_seconds=1e4))
    assert POLICY.for_execution(
        LIMITS, LimitChanges(timeout_seconds=7), at_leisure=True
    ) == replace(LIMITS, timeout_seconds=7)
    bounded = LimitPolicy(LIMITS, {"timeout_seconds": 86400.0})
    shell = bounded.for_execution(LIMITS, LimitChanges(cpus=1.0), at_leisure=True)
    assert shell == replace(LIMITS, cpus=1.0, timeout_seconds=86400.0)
    shell = LimitPolicy(LIMITS, {}).for_execution(LIMITS, LimitChanges(), at_leisure=True)
    assert shell.timeout_seconds > 86400 * 365
    assert (own.cpus, own.timeout_seconds, own.pids) == (1.0, 1e4, LIMITS.pids)
    with pytest.raises(LimitTooLarge, match="sandbox's own limit"):
        POLICY.for_execution(LIMITS, LimitChanges(cpus=2.1))
    with pytest.raises(InvalidRequest, match="belongs to the sandbox"):
        POLICY.for_execution(LIMITS, LimitChanges(disk_bytes=1))


def test_a_share_of_an_execution_may_be_any_up_to_the_servers_maximum() -> None:
    asked = LimitChanges(cpu_weight=10_000)
    assert POLICY.for_execution(LIMITS, asked) == replace(LIMITS, cpu_weight=10_000)
    policy = LimitPolicy(LIMITS, {"cpu_weight": 200})
    assert policy.for_execution(LIMITS, LimitChanges(cpu_weight=200)).cpu_weight == 200
    with pytest.raises(LimitTooLarge, match="this server's maximum is 200"):
        policy.for_execution(LIMITS, LimitChanges(cpu_weight=201))


@pytest.mark.parametrize(
    ("host", "total", "largest"),
    [(31175, 27279, 13639), (32768, 28672, 14336), (4000, 2976, 1488), (100, 50, 25), (1, 1, 1)],
)
def test_a_host_keeps_tasks_for_itself(host: int, total: int, largest: int) -> None:
    budget = TaskBudget(host, "kernel.pid_max")
    assert (budget.total, budget.largest) == (total, largest)


def test_no_more_tasks_are_promised_than_there_are() -> None:
    budget = TaskBudget(32768, "kernel.pid_max")
    budget.check(14336, 14336)
    with pytest.raises(CapacityExceeded) as raised:
        budget.check(14336, 14337)
    assert raised.value.details == {"tasks_total": 28672, "tasks_asked": 14336}
    assert raised.value.of_others == {"tasks_committed": 14337}
    assert "14337" not in raised.value.message


@pytest.mark.parametrize("usable", [3072, 256, 40, 8, 0])
def test_no_order_of_executions_takes_all_terminals(usable: int) -> None:
    budget = TerminalBudget(usable)
    pool = budget.total - budget.total // 4
    alone = [budget.share(of_caller=k, of_all=k) for k in range(4000)]
    assert sum(alone) <= pool // 2
    everybody = [budget.share(of_caller=0, of_all=k) for k in range(4000)]
    assert sum(everybody) <= pool
    # With one for each execution that has a terminal itself, of which there is a bound as well.
    assert sum(everybody) + budget.total // 4 <= budget.total <= usable
    assert alone == sorted(alone, reverse=True)


def test_a_few_executions_may_open_many_terminals() -> None:
    budget = TerminalBudget(3072)
    assert budget.share(of_caller=0, of_all=0) == 64
    assert budget.share(of_caller=20, of_all=20) >= 5
    assert budget.share(of_caller=0, of_all=100) >= 2


def test_terminals_are_refused_by_caller_before_there_is_none_for_others() -> None:
    budget = TerminalBudget(3072)
    budget.check(owner_uid=7, of_caller=167, of_all=167)
    with pytest.raises(QuotaExceeded, match="another terminal"):
        budget.check(owner_uid=7, of_caller=168, of_all=168)
    # Others leave half of what is left, and a few in any case.
    budget.check(owner_uid=8, of_caller=83, of_all=168 + 83)
    with pytest.raises(QuotaExceeded, match="84 of its executions"):
        budget.check(owner_uid=8, of_caller=84, of_all=168 + 84)
    for of_all in range(336, 672):
        budget.check(owner_uid=9, of_caller=3, of_all=of_all)
    with pytest.raises(CapacityExceeded):
        budget.check(owner_uid=9, of_caller=0, of_all=672)


def test_budget_is_the_hosts_less_the_reserve() -> None:
    budget = Budget(8 * GIB, 1 * GIB)
    budget.check(4 * GIB, 3 * GIB)
    with pytest.raises(CapacityExceeded) as caught:
        budget.check(4 * GIB, 3 * GIB + 1)
    assert caught.value.details == {"budget_bytes": 7 * GIB, "asked_bytes": 4 * GIB}
    assert caught.value.of_others == {"committed_bytes": 3 * GIB + 1}
    assert caught.value.retryable


def test_more_memory_than_all_may_have_never_fits() -> None:
    budget = Budget(8 * GIB, 1 * GIB)
    budget.check(7 * GIB, 0)
    with pytest.raises(CapacityExceeded) as caught:
        budget.check(7 * GIB + 1, 0)
    assert (caught.value.retryable, "at most 7516192768 bytes" in str(caught.value.hint)) == (
        False,
        True,
    )
    # A sandbox that grows keeps its own memory.
    with pytest.raises(CapacityExceeded) as caught:
        budget.check(3 * GIB, 5 * GIB, held_bytes=4 * GIB)
    assert caught.value.retryable
    with pytest.raises(CapacityExceeded) as caught:
        budget.check(3 * GIB + 1, 5 * GIB, held_bytes=4 * GIB)
    assert not caught.value.retryable


def test_more_than_a_bound_of_tasks_or_terminals_never_fits() -> None:
    with pytest.raises(CapacityExceeded) as caught:
        TaskBudget(32768, "kernel.pid_max").check(28673, 0)
    assert (caught.value.retryable, "at most 28672" in str(caught.value.hint)) == (False, True)
    with pytest.raises(CapacityExceeded) as caught:
        TerminalBudget(2).check(owner_uid=7, of_caller=0, of_all=0)
    assert (caught.value.retryable, "kernel.pty.max" in str(caught.value.hint)) == (False, True)


@pytest.mark.parametrize(
    ("what", "held", "fits", "never"),
    [("memory_bytes", 0, GIB, GIB + 1), ("memory_bytes", GIB // 2, GIB // 2, GIB // 2 + 1),
     ("pids", 0, 100, 101), ("record_bytes", 0, 64, 65)],
)  # fmt: skip
def test_more_than_a_caller_may_have_at_all_never_fits(
    what: str, held: int, fits: int, never: int
) -> None:
    quota = CallerQuota(memory_bytes=GIB, pids=100, record_bytes=64)
    with pytest.raises(QuotaExceeded) as caught:
        quota.check(owner_uid=7, what=what, used=held + 1, asked=fits, held=held)
    assert caught.value.retryable
    with pytest.raises(QuotaExceeded) as caught:
        quota.check(owner_uid=7, what=what, used=held, asked=never, held=held)
    assert not caught.value.retryable
    assert f"max_{what}_per_caller" in str(caught.value.hint)


@pytest.mark.parametrize(("host", "default"), [(64, 2 * GIB), (3, GIB)])
def test_default_memory_nobody_set(host: int, default: int) -> None:
    assert Budget(host * GIB, GIB).default_memory(None) == default


def test_default_memory_that_does_not_fit_even_once() -> None:
    assert Budget(3 * GIB, GIB).default_memory(2 * GIB) == 2 * GIB
    with pytest.raises(ConfigError, match="even once"):
        Budget(3 * GIB, GIB).default_memory(2 * GIB + 1)
    with pytest.raises(ConfigError, match="no room"):
        Budget(GIB, GIB).default_memory(None)


ENFORCEMENT = {
    "memory_bytes": Enforcement(EnforcedBy.KERNEL, "memory.max"),
    "cpus": Enforcement(EnforcedBy.SUPERVISOR, "sampled"),
    "disk_bytes": Enforcement(EnforcedBy.NONE, "nothing holds it"),
}


def test_required_limits() -> None:
    check_required(["memory_bytes", "cpus"], None, ENFORCEMENT)
    check_required(["memory_bytes"], EnforcedBy.KERNEL, ENFORCEMENT)
    with pytest.raises(LimitUnsupported, match="nothing holds it"):
        check_required(["disk_bytes"], None, ENFORCEMENT)
    with pytest.raises(
        LimitUnsupported,
        match=r"have the kernel enforce cpus .*: the supervisor holds it \(sampled\)",
    ):
        check_required(["cpus"], EnforcedBy.KERNEL, ENFORCEMENT)
    with pytest.raises(InvalidRequest, match="not a limit"):
        check_required(["colour"], None, ENFORCEMENT)


def test_a_file_may_be_as_large_as_the_disk_limit() -> None:
    defaults = replace(LIMITS, disk_bytes=1 << 30, file_size_bytes=1 << 30)
    policy = LimitPolicy(defaults, {"file_size_bytes": 4 << 30})
    small = policy.for_sandbox(LimitChanges(disk_bytes=1 << 20))
    assert small.file_size_bytes == 1 << 20
    assert policy.changed(small, LimitChanges(disk_bytes=2 << 20)).file_size_bytes == 2 << 20
    assert policy.for_sandbox(LimitChanges(disk_bytes=8 << 30)).file_size_bytes == 4 << 30
    own = policy.for_sandbox(LimitChanges(disk_bytes=1 << 30, file_size_bytes=5))
    assert policy.changed(own, LimitChanges(disk_bytes=9)).file_size_bytes == 5
