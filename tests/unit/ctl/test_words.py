# SPDX-License-Identifier: Apache-2.0
"""Exit codes, verdicts, tables: from answers to what a person or a scheduler sees."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from sandboxd.client.refusals import DaemonUnreachable
from sandboxd.core.model import ExecutionStatus, Usage
from sandboxd.ctl import draining, exits, show, verdict
from sandboxd.errors import (
    CapacityExceeded,
    ExecutionLimitReached,
    ExecutionNotStarted,
    InternalError,
    InvalidRequest,
    QuotaExceeded,
    SandboxdError,
    SandboxNotFound,
)


def execution(**fields: Any) -> dict[str, Any]:
    return {
        "status": "EXITED", "exit_code": 0, "signal": None, "error_code": None,
        "limit_owner": None, "failure": None, "unkillable": False, "leftovers_killed": 0,
        "stdout_bytes": 0, "stderr_bytes": 0, "stdout_truncated": False, "stderr_truncated": False,
        "limits": {"memory_bytes": 256 << 20, "pids": 64, "cpu_seconds": None},
        "enforcement": {"memory_bytes": {"by": "kernel", "detail": "memory.max"}},
        "usage": dict.fromkeys(Usage.__dataclass_fields__), **fields,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"exit_code": 0}, 0),
        ({"exit_code": 7}, 7),
        ({"status": "SIGNALED", "exit_code": None, "signal": 9}, 137),
        ({"status": "SIGNALED", "exit_code": None, "signal": 11}, 139),
        ({"status": "LOST", "exit_code": None}, 125),
    ],
)
def test_exit_code_of_an_execution(fields: dict[str, Any], code: int) -> None:
    assert exits.of_execution(execution(**fields)) == code


def test_whatever_was_killed_is_137() -> None:
    own = {"EXITED", "SIGNALED", "LOST", "PENDING", "RUNNING"}
    for status in set(ExecutionStatus) - own:
        killed = execution(status=status, exit_code=None, signal=9)
        assert exits.of_execution(killed) == 137, status


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CapacityExceeded("cannot"), 75),
        (CapacityExceeded("cannot", retryable=False), 125),
        (QuotaExceeded("cannot", retryable=False), 125),
        (ExecutionLimitReached("cannot"), 75),
        (InvalidRequest("cannot"), 125),
        (SandboxNotFound("cannot"), 125),
        (DaemonUnreachable("/s", errno.EACCES), 125),
        (ExecutionNotStarted("cannot", details={"step": "exec", "errno": errno.ENOENT}), 127),
        (ExecutionNotStarted("cannot", details={"step": "exec", "errno": errno.EACCES}), 126),
        (ExecutionNotStarted("cannot", details={"step": "exec", "errno": errno.ENOEXEC}), 126),
        (ExecutionNotStarted("cannot", details={"step": "cwd", "errno": errno.ENOENT}), 125),
    ],
)
def test_exit_code_of_a_refusal(error: SandboxdError, code: int) -> None:
    assert exits.of_error(error) == code


def test_a_refusal_is_told_with_its_hint_and_fields(capsys: pytest.CaptureFixture[str]) -> None:
    fields = [{"path": "a", "reason": "bad"}, {"path": "b", "reason": "worse"}]
    exits.report(InvalidRequest("cannot accept a: bad", hint="be good", details={"fields": fields}))
    exits.report(InternalError("cannot serve", details={"request_id": "abcdefghijkl"}))
    exits.report(DaemonUnreachable("/s", errno.EACCES))
    said = capsys.readouterr().err
    for part in (
        "cannot accept a: bad [INVALID_REQUEST]\n", "b: worse", "hint: be good",
        "request: abcdefghijkl", "permission denied", "ask an admin",
    ):  # fmt: skip
        assert part in said


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"exit_code": 3}, "exited with code 3"),
        ({"error_code": "SANDBOX_PIDS_LIMIT_REACHED", "limit_owner": "sandbox"},
         "exited with code 0 (SANDBOX_PIDS_LIMIT_REACHED, the sandbox's limit of 64)"),
        ({"status": "SIGNALED", "signal": 11}, "ended by SIGSEGV"),
        ({"status": "SIGNALED", "signal": 40}, "ended by signal 40"),
        ({"status": "OOM_KILLED", "error_code": "SANDBOX_MEMORY_LIMIT_EXCEEDED",
          "limit_owner": "execution"},
         "OOM_KILLED (SANDBOX_MEMORY_LIMIT_EXCEEDED, its own limit of 256 MiB)"),
        ({"status": "OOM_KILLED", "error_code": "HOST_MEMORY_EXHAUSTED", "limit_owner": "host"},
         "OOM_KILLED (HOST_MEMORY_EXHAUSTED, the host's memory)"),
        ({"status": "OUTPUT_LIMIT", "error_code": "SANDBOX_OUTPUT_LIMIT_EXCEEDED",
          "limit_owner": "host"},
         "OUTPUT_LIMIT (SANDBOX_OUTPUT_LIMIT_EXCEEDED, the host's disk is nearly full)"),
        ({"status": "KILLED", "error_code": "KILLED_BY_CALLER"}, "KILLED (KILLED_BY_CALLER)"),
        ({"status": "LOST", "failure": "no\x1b[2Jroom"}, "LOST (no?[2Jroom)"),
    ],
)  # fmt: skip
def test_the_verdict_names_the_reason(fields: dict[str, Any], line: str) -> None:
    assert verdict.verdict(execution(**fields)) == line


def test_the_block_says_unknown_and_never_zero_for_it() -> None:
    usage = {**execution()["usage"], "wall_seconds": 1.5, "memory_peak_bytes": 3 << 20}
    ended = execution(usage=usage, stdout_truncated=True, stdout_bytes=9)
    block = "\n".join(verdict.block(ended, is_long=True))
    assert "wall 1.50 s" in block
    assert "memory peak 3 MiB" in block
    assert "pids peak unknown" in block
    assert "stdout: cut off after 9 bytes" in block
    assert "memory_bytes  256 MiB  kernel       memory.max" in block


def test_of_what_runs_no_end_is_said() -> None:
    assert verdict.summary(execution(status="RUNNING", exit_code=None)) == ["still runs"]


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 executions still run"), (1, "1 execution still runs"), (2, "2 executions still run")],
)
def test_how_much_runs_while_a_host_drains(count: int, words: str) -> None:
    host = {"draining": True, "executions_running": count}
    assert draining.words(host) == f"draining: no new work, {words}"


@pytest.mark.parametrize(
    ("by", "line"),
    [
        ({"memory_bytes": "kernel", "pids": "kernel", "cpu_seconds": "none"},
         "limits held by the kernel"),
        ({"memory_bytes": "supervisor", "pids": "kernel"},
         "limits held by the kernel, but memory_bytes by the supervisor"),
        ({"memory_bytes": "supervisor", "pids": "none"},
         "limits held by the supervisor, but pids by nobody"),
        ({"memory_bytes": "supervisor", "cpus": "supervisor", "pids": "kernel"},
         "limits held by the supervisor, but pids by the kernel"),
        ({"memory_bytes": "supervisor", "cpus": "supervisor"}, "limits held by the supervisor"),
        ({"memory_bytes": "none", "cpus": "none"}, "limits held by nobody"),
        ({"memory_bytes": "none", "cpus": "none", "pids": "kernel"},
         "limits held by nobody, but pids by the kernel"),
        ({"memory_bytes": "advisory", "cpus": "supervisor", "timeout_seconds": "supervisor",
          "pids": "kernel", "disk_bytes": "none"},
         "limits held by the supervisor, but pids by the kernel; memory_bytes by the supervisor as"
         " advice; disk_bytes by nobody"),
        ({"memory_bytes": "advisory"}, "limits held by the supervisor as advice"),
    ],
)  # fmt: skip
def test_one_line_says_who_holds_most_limits_and_which_another_holds(
    by: dict[str, str], line: str
) -> None:
    ways = {"advisory": {"by": "supervisor", "detail": "advisory: by looks now and then"}}
    held = {name: ways.get(who, {"by": who, "detail": "how"}) for name, who in by.items()}
    limits = {**dict.fromkeys(by, 1), "cpu_seconds": None}
    assert verdict.holders(limits, held) == line
    assert "\n" not in line


def test_nothing_is_said_of_limits_where_there_are_none() -> None:
    lines = verdict.block(execution(enforcement={}), is_long=False)
    assert lines == verdict.block(execution(enforcement={}), is_long=True)
    assert len(lines) == 2


def test_a_table_prints_nothing_that_a_terminal_obeys() -> None:
    lines = show.table([("A", "B"), ("x\x1b[31m\n", "ü")])
    assert lines == ["A        B", "x?[31m?  ü"]
    assert show.command_line(["sh", "-c", "a b\n" * 40]).startswith("sh -c 'a b?")
    assert len(show.command_line(["x"] * 100)) == 60


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "0.50 s"), (59.0, "59 s"), (3600.0, "60 min"), (86400.0, "24 h"), (1e6, "12 d")],
)
def test_durations(seconds: float, text: str) -> None:
    assert show.duration(seconds) == text
