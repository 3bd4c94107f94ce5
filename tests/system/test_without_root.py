# SPDX-License-Identifier: Apache-2.0
"""A user's own daemon: tests of tests/integration that root cannot run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest

from tests.conftest import ANOTHER_UID
from tests.harness import ROOT

TESTS = "tests/integration/test_supervisor_lacks.py"

pytestmark = [pytest.mark.usefixtures("requires_root"), pytest.mark.timeout(400)]


def test_a_user_runs_commands_within_what_a_user_can_hold() -> None:
    user = ["setpriv", f"--reuid={ANOTHER_UID}", f"--regid={ANOTHER_UID}", "--clear-groups", "--"]
    pytest_command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    # Not tmp_path, which is below a directory of root's alone.
    with tempfile.TemporaryDirectory(prefix="sandboxd-user-") as home:
        os.chown(home, ANOTHER_UID, ANOTHER_UID)
        done = subprocess.run(
            [*user, *pytest_command, TESTS, "-k", "without_root and memory"], cwd=ROOT,
            env={**os.environ, "HOME": home, "TMPDIR": home}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=360,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
