# SPDX-License-Identifier: Apache-2.0
"""The linters are tests. `./dev lint` installs ruff and mypy; a strict run needs both."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import unmet

ROOT = Path(__file__).resolve().parents[2]
PYTHONS = (sys.executable, str(ROOT / ".venv/bin/python"))


@functools.cache
def python_with(module: str) -> str | None:
    for python in PYTHONS:
        if not Path(python).exists():
            continue
        probe = subprocess.run([python, "-P", "-m", module, "--version"], capture_output=True)
        if probe.returncode == 0:
            return python
    return None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("command", ["ruff check", "ruff format --check", "mypy"])
def test_linter_finds_nothing(command: str) -> None:
    module, *arguments = command.split()
    python = python_with(module)
    if python is None:
        unmet(f"{module} (./dev lint installs it)")
    done = subprocess.run(
        [python, "-P", "-m", module, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
