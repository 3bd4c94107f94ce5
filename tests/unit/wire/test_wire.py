# SPDX-License-Identifier: Apache-2.0
"""The JSON models: what a request turns into, what an answer makes of bytes and numbers."""

from __future__ import annotations

import base64
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sandboxd.client.calls import inline_output
from sandboxd.core.model import LimitChanges, Limits, OutputSummary, SandboxState, Usage
from sandboxd.wire.answers import INLINE_BYTES, Inline, LimitsAnswer, UsageAnswer
from sandboxd.wire.meant import meant
from sandboxd.wire.payload import MAX_EXEC_BYTES, MAX_STRING_BYTES, exec_bytes
from sandboxd.wire.queries import SandboxesQuery, WaitQuery
from sandboxd.wire.requests import (
    LIMIT_NAMES,
    ChangeSandbox,
    CreateSandbox,
    KillExecution,
    LimitsBody,
    Run,
    StartExecution,
)


def names(model: type) -> list[str]:
    return [field.name for field in dataclasses.fields(model)]


def test_limits_and_usage_have_the_same_names_everywhere() -> None:
    assert list(LimitsBody.model_fields) == names(LimitChanges) == names(Limits)
    assert list(LimitsAnswer.model_fields) == names(Limits)
    assert list(UsageAnswer.model_fields) == names(Usage)


@pytest.mark.parametrize(
    ("field", "given", "taken"),
    [
        ("memory_bytes", 1, 1),
        ("memory_bytes", "512M", 512 << 20),
        ("memory_bytes", 1 << 62, 1 << 62),
        ("cpus", 1, 1.0),
        ("cpus", 0.5, 0.5),
        ("cpus", "150%", 1.5),
        ("timeout_seconds", 1, 1.0),
        ("timeout_seconds", 0.25, 0.25),
        ("timeout_seconds", "90s", 90.0),
        ("timeout_seconds", "1h 30min", 5400.0),
        ("pids", 1, 1),
        ("open_files", 1 << 20, 1 << 20),
        ("cpu_weight", 1, 1),
        ("cpu_weight", 10_000, 10_000),
    ],
)
def test_quantities_are_plain_numbers_inside(field: str, given: object, taken: float) -> None:
    limits = LimitsBody.model_validate({field: given})
    assert limits.changes().as_dict() == {field: taken}


@pytest.mark.parametrize(
    "model", [CreateSandbox, ChangeSandbox, KillExecution, LimitsBody, WaitQuery]
)
def test_null_is_the_same_as_missing(model: type[CreateSandbox]) -> None:
    nulls = model.model_validate(dict.fromkeys(model.model_fields))
    assert nulls == model.model_validate({})


def test_a_command_takes_its_forms() -> None:
    exact = StartExecution.model_validate(
        {
            "argv": ["a", ""], "env": {"A": ""}, "cwd": "x/y", "stdin": "ü\0", "merge_output": True,
            "kill_grace_seconds": "2s", "timeout_seconds": 3, "max_output_bytes": "1K",
            "limits": {"pids": 4},
        }
    )  # fmt: skip
    command = exact.decode()
    assert command.argv == ("a", "")
    assert (command.env, command.cwd, command.stdin) == ({"A": ""}, "x/y", b"\xc3\xbc\0")
    assert (command.merge_output, command.kill_grace_seconds) == (True, 2.0)
    own = {"pids": 4, "timeout_seconds": 3.0, "max_output_bytes": 1024}
    assert exact.changes().as_dict() == own
    shell = StartExecution.model_validate({"command": "a | b", "stdin_base64": "AP8="})
    assert shell.decode().argv == ("/bin/sh", "-c", "a | b")
    assert shell.decode().stdin == b"\0\xff"
    assert StartExecution.model_validate({"argv": ["a"], "stdin": ""}).decode().stdin == b""
    assert StartExecution.model_validate({"argv": ["a"]}).decode().stdin is None


def test_the_longest_strings_that_exec_takes_are_taken() -> None:
    longest = "x" * (MAX_STRING_BYTES - 1)
    assert StartExecution.model_validate({"argv": ["a", longest]}).decode().argv[1] == longest
    StartExecution.model_validate({"argv": ["a"], "env": {"A": longest[2:]}})
    many = ["x" * 1000] * (MAX_EXEC_BYTES // 1009)
    assert exec_bytes(many, {}) <= MAX_EXEC_BYTES
    assert len(StartExecution.model_validate({"argv": many}).decode().argv) == len(many)


def test_a_run_splits_its_limits_and_loses_none() -> None:
    every = dict.fromkeys(names(LimitChanges), 1)
    run = Run.model_validate({"argv": ["a"], "limits": every})
    sandbox, execution = (changes.as_dict() for changes in run.split_changes())
    assert set(sandbox) | set(execution) == set(every)
    assert not set(sandbox) & set(execution)
    assert "timeout_seconds" in execution
    assert "disk_bytes" in sandbox


def inline_of(data: bytes, summary: OutputSummary) -> Inline:
    steps = Inline.steps(data, summary)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            made: Inline = done.value
            return made


@given(st.binary(max_size=64), st.booleans())
def test_inline_output_loses_no_byte(data: bytes, truncated: bool) -> None:
    inline = inline_of(data, OutputSummary(len(data), truncated))
    answer = {"stdout": inline.text, "stdout_base64": inline.base64}
    assert inline_output(answer, "stdout") == data
    assert not inline.is_cut
    is_text = data.decode("utf-8", "replace").encode() == data
    assert (inline.base64 is None) == is_text


@pytest.mark.parametrize("character", ["x", "ü", "€", "😀"])
@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_the_cut_lies_between_characters(character: str, offset: int) -> None:
    whole = b"x" * offset + character.encode() * (INLINE_BYTES + 8)
    inline = inline_of(whole[: INLINE_BYTES + 1], OutputSummary(len(whole)))
    assert inline.base64 is None
    assert inline.is_cut
    assert inline.size_bytes == len(whole)
    assert INLINE_BYTES - 3 <= len(inline.text.encode()) <= INLINE_BYTES
    assert whole.startswith(inline.text.encode())


def test_bytes_that_are_no_text_are_cut_at_the_bound() -> None:
    whole = b"\xff" * (INLINE_BYTES + 1)
    inline = inline_of(whole, OutputSummary())
    assert base64.b64decode(inline.base64 or "") == whole[:INLINE_BYTES]
    assert inline.size_bytes == INLINE_BYTES + 1


def test_a_running_executions_size_is_at_least_what_is_there() -> None:
    assert inline_of(b"abc", OutputSummary()).size_bytes == 3


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("limits", "memory"), "memory_bytes"), (("limits", "memory_mb"), "memory_bytes"),
        (("memory_mb",), "limits.memory_bytes"), (("memory",), "limits.memory_bytes"),
        (("mem",), "limits.memory_bytes"), (("cmd",), "command"), (("timeout",), "timeout_seconds"),
        (("args",), "argv"), (("environment",), "env"), (("isolate",), "isolation"),
        (("xyzzy",), None), (("x" * 100_000,), None), (("limits", "xyzzy"), None),
        (("no", "such"), None), (("binds", 0, "src"), None),
    ],
)  # fmt: skip
def test_an_unknown_field_is_told_what_was_meant(path: tuple[str, ...], name: str | None) -> None:
    assert meant(Run, path) == name


def test_limits_are_all_required_where_only_the_holder_is_named() -> None:
    bounds = tuple(name for name in LIMIT_NAMES if name != "cpu_weight")
    assert Run.model_validate({"argv": ["true"], "require_by": "kernel"}).required() == bounds
    assert Run.model_validate({"argv": ["true"], "require_by": "any"}).required() == bounds
    weighed = {"argv": ["true"], "require_by": "any", "limits": {"cpu_weight": 50}}
    assert Run.model_validate(weighed).required() == LIMIT_NAMES
    named = {"argv": ["true"], "require": ["pids"], "require_by": "kernel"}
    assert Run.model_validate(named).required() == ("pids",)
    assert Run.model_validate({"argv": ["true"]}).required() == ()


def test_a_list_is_of_several_states() -> None:
    query = SandboxesQuery.model_validate({"state": "ready,suspended"})
    assert query.state == frozenset({SandboxState.READY, SandboxState.SUSPENDED})
    for wrong in ("", "ready,", "READY", "ready suspended", "nosuch"):
        with pytest.raises(ValidationError, match="with commas between"):
            SandboxesQuery.model_validate({"state": wrong})
