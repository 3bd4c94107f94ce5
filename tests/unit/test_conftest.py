# SPDX-License-Identifier: Apache-2.0
"""The rules of tests/conftest.py, in runs of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Without the plugins that cost most of a short run's time.
QUIET = ("-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")
SKIPS = """\
from tests.conftest import unmet
def test_needs_something():
    unmet("a thing no host has")
"""
MIXED = """\
import asyncio, warnings
def test_passes():
    pass
def test_warns():
    warnings.warn("soon", stacklevel=1)
async def test_awaits(tmp_path):
    await asyncio.sleep(0)
    assert tmp_path.exists()
async def test_fails_late():
    await asyncio.sleep(0)
    assert False
"""
LEAVES_A_CHILD = """\
import subprocess, sys
left = []
def test_leaves_a_child():
    left.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
"""


def run_pytest(*arguments: str, strict: bool = False) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    environment["SANDBOXD_TEST_STRICT"] = "1" if strict else ""
    return subprocess.run(
        [sys.executable, "-m", "pytest", *QUIET, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("source", "strict", "status", "summary"),
    [
        pytest.param(MIXED + SKIPS, False, 1, "2 failed, 2 passed, 1 skipped", id="mixed"),
        pytest.param(MIXED + SKIPS, True, 1, "3 failed, 2 passed", id="strict"),
        pytest.param(SKIPS, False, 5, "1 skipped", id="nothing-proven"),
        pytest.param(LEAVES_A_CHILD, False, 1, "1 passed, 1 error", id="child-left"),
    ],
)
def test_verdict_of_a_run(
    source: str, strict: bool, status: int, summary: str, tmp_path: Path
) -> None:
    (tmp_path / "test_sample.py").write_text(source)
    config = ROOT / "pyproject.toml"
    done = run_pytest("-p", "tests.conftest", "-c", str(config), str(tmp_path), strict=strict)
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith(summary)


# Runtimes that are too large to be a prerequisite, and what root is no substitute for, which a test
# of the machine runs as a user.
MAY_SKIP = {
    "conftest.py",
    "integration/test_filtered_programs.py",
    "integration/test_supervisor_lacks.py",
    "unit/isolation/test_seccomp.py",
    "unit/test_conftest.py",
}


def test_what_a_host_lacks_is_said_by_unmet_alone() -> None:
    """A skip of another kind would pass a strict run."""
    tests = ROOT / "tests"
    skips = re.compile(r"pytest\.skip\b|\bskipif\b|\bimportorskip\b|mark\.skip\b|SkipTest")
    found = {
        str(path.relative_to(tests))
        for path in tests.rglob("*.py")
        if skips.search(path.read_text())
    }
    assert found == MAY_SKIP


@pytest.mark.parametrize(("folder", "is_run"), [("tests", False), ("tests/packaging", True)])
def test_folder_runs_only_when_asked_for(folder: str, is_run: bool) -> None:
    not_read = ["--ignore=tests/unit", "--ignore=tests/contract", "--ignore=tests/integration"]
    done = run_pytest("--collect-only", *not_read, folder)
    assert ("tests/packaging/test_minimal_roots.py::test_run" in done.stdout) == is_run
