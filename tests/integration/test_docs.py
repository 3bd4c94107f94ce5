# SPDX-License-Identifier: Apache-2.0
"""What the documentation tells people to do, done: docs/client.md and docs/tutorial.md."""

from __future__ import annotations

import doctest
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness import ROOT, running_daemon

# An emulated machine takes some minutes for each page.
pytestmark = pytest.mark.timeout(900)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MARK = "--- end of block ---"


def blocks(name: str) -> list[tuple[str, str]]:
    """Language and text of each block of a page."""
    found = BLOCK.findall((ROOT / "docs" / name).read_text())
    assert found
    return found


def test_examples_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(block for language, block in blocks("client.md") if language == "pycon")
    names: dict[str, Any] = {}
    test = doctest.DocTestParser().get_doctest(text, names, "client.md", None, None)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    said: list[str] = []
    with running_daemon(SANDBOX_CGROUP_MODE="off") as daemon:
        monkeypatch.setenv("SANDBOXD_SOCKET", daemon.socket)
        results = runner.run(test, out=said.append)
    assert results.failed == 0, "".join(said)
    assert results.attempted > 40


@contextmanager
def directories() -> Iterator[dict[str, str]]:
    """What the tutorial calls its directories -> this run's own; whatever it left is ended."""
    is_root = os.getuid() == 0
    own = {
        "/var/lib/sandboxd-tutorial": tempfile.mkdtemp(
            prefix="sandboxd-test-", dir="/var/lib" if is_root else None
        ),
        "/run/sandboxd-tutorial": tempfile.mkdtemp(prefix="sbx-", dir="/run" if is_root else None),
        "/tmp/tutorial": tempfile.mkdtemp(prefix="tutorial-"),
    }
    state, runtime, _ = own.values()
    Path(state).chmod(0o711)
    try:
        yield own
    finally:
        subprocess.run(
            ["./dev", "daemon", "--stop-all", "--state-dir", state, "--runtime-dir", runtime],
            cwd=ROOT, capture_output=True, timeout=90, check=True,
        )  # fmt: skip
        for directory in own.values():
            shutil.rmtree(directory, ignore_errors=True)


def test_the_tutorial_as_it_is_written() -> None:
    page = blocks("tutorial.md")
    assert {language for language, _ in page} == {"sh", "text"}
    with directories() as own:
        script = ["set -eu", "trap 'kill $(jobs -p) 2>/dev/null || :' EXIT"]
        for language, text in page:
            if language == "sh":
                # Others may follow the same page at the same time.
                for written, used in own.items():
                    text = text.replace(written, used)
                script += [text, f"printf '%s\\n' '{MARK}'"]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SANDBOX")}
        done = subprocess.run(
            ["bash", "-c", "\n".join(script)], cwd=ROOT, env=environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=800,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        assert not Path(own["/run/sandboxd-tutorial"], "sandboxd.sock").exists()
    outputs = iter(done.stdout.split(f"{MARK}\n"))
    checker = doctest.OutputChecker()
    seen = ""
    for language, text in page:
        if language == "sh":
            seen = next(outputs)
        else:
            assert checker.check_output(text, seen, LOOSE), f"{text}is not\n{seen}"
