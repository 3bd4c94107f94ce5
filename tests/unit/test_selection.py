# SPDX-License-Identifier: Apache-2.0
"""What of the contract runs where: nothing of it may get lost between two runs."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.conftest import TESTS
from tests.contract.selection import (
    CONTROL,
    FAKED,
    FAKES,
    SCHEME_FREE,
    left_out,
    takes_everything,
)

NEEDS_SHELL = "test_a_run_whose_client_left_is_run_once"


def item(file: str, backend: str, name: str = "test_a", **parameters: Any) -> Any:
    callspec = SimpleNamespace(params={"backend": backend, **parameters})
    return SimpleNamespace(path=Path(file), originalname=name, callspec=callspec)


def attempt(**needs: str) -> Any:
    return SimpleNamespace(needs=needs.get("needs"), control_needs=needs.get("control_needs"))


def test_each_file_that_is_left_out_exists() -> None:
    assert {name for name in SCHEME_FREE if not (TESTS / "contract" / name).exists()} == set()


def test_over_systemd_one_test_of_a_scheme_free_file_is_left() -> None:
    first, second = item("test_files.py", "systemd"), item("test_files.py", "systemd")
    other = item("test_keys.py", "systemd")
    bound = item("test_memory.py", "systemd")
    assert left_out([first, second, other, bound], everything=False) == [second]


def test_at_home_and_at_full_count_all_run() -> None:
    at_home = [item("test_files.py", "rlimit") for _ in range(3)]
    elsewhere = [item("test_files.py", "systemd") for _ in range(3)]
    assert left_out(at_home, everything=False) == []
    assert left_out(elsewhere, everything=True) == []


def test_what_no_host_can_have_never_runs() -> None:
    strict = item("test_escapes.py", "rlimit", place="strict")
    assert left_out([strict], everything=True) == [strict]


def test_over_the_fakes_runs_what_needs_no_process_and_no_disk() -> None:
    fits, needs_shell = item("test_keys.py", FAKES), item("test_keys.py", FAKES, NEEDS_SHELL)
    real = item("test_keys.py", "rlimit", NEEDS_SHELL)
    bound = item("test_memory.py", FAKES)
    assert left_out([fits, needs_shell, real, bound], everything=True) == [needs_shell, bound]


def test_each_test_that_the_fakes_leave_out_exists() -> None:
    for name, needy in FAKED.items():
        tree = ast.parse((TESTS / "contract" / name).read_text())
        assert needy <= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_a_control_runs_over_systemd_only_where_the_bare_host_may_not_have_it() -> None:
    plain = item("test_escapes.py", "systemd", CONTROL, attempt=attempt())
    needy = item("test_escapes.py", "systemd", CONTROL, attempt=attempt(needs="memory_max"))
    core = item("test_escapes.py", "systemd", CONTROL, attempt=attempt(control_needs="has_core"))
    assert left_out([plain, needy, core], everything=False) == [plain]
    assert left_out([plain, needy, core], everything=True) == []


@pytest.mark.parametrize(
    ("soak", "args", "everything"),
    [
        ("1", ["tests/contract"], True),
        ("0.1", ["tests/contract"], False),
        ("0.1", ["tests/contract", "tests/system/test_flat.py"], False),
        ("", ["/x/tests/contract/test_files.py::test_a"], True),
    ],
)
def test_full_count_or_a_named_file_takes_everything(
    monkeypatch: pytest.MonkeyPatch, soak: str, args: list[str], everything: bool
) -> None:
    monkeypatch.setenv("SANDBOXD_SOAK", soak)
    config: Any = SimpleNamespace(args=args)
    assert takes_everything(config) is everything
