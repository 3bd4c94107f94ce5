# SPDX-License-Identifier: Apache-2.0
"""What the documentation tells people to do, done: README.md, docs/client.md, docs/tutorial.md,
docs/api.md."""

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

from tests.conftest import requires_program
from tests.harness import ROOT, running_daemon

# An emulated machine takes some minutes for each page.
pytestmark = pytest.mark.timeout(900)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LOOSE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MARK = "--- end of block ---"


def blocks(name: str, part: str = "") -> list[tuple[str, str]]:
    """Language and text of each block of a page, or of its part below that heading."""
    text = (ROOT / name).read_text()
    if part:
        text = text.partition(f"\n## {part}\n")[2].partition("\n## ")[0]
    found = BLOCK.findall(text)
    assert found
    return found


def test_examples_of_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "\n".join(block for language, block in blocks("docs/client.md") if language == "pycon")
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
def directories(name: str) -> Iterator[dict[str, str]]:
    """What a page calls its directories -> this run's own; whatever it left is ended."""
    is_root = os.getuid() == 0
    own = {
        f"/var/lib/sandboxd-{name}": tempfile.mkdtemp(
            prefix="sandboxd-test-", dir="/var/lib" if is_root else None
        ),
        f"/run/sandboxd-{name}": tempfile.mkdtemp(prefix="sbx-", dir="/run" if is_root else None),
        f"/tmp/{name}": tempfile.mkdtemp(prefix=f"{name}-"),
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


def typed(lines: list[str], own: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """In a shell in the checkout; others may follow the same page at the same time."""
    script = "\n".join(["trap 'kill $(jobs -p) 2>/dev/null || :' EXIT", *lines])
    for written, used in own.items():
        script = script.replace(written, used)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SANDBOX")}
    done = subprocess.run(
        ["bash", "-c", script], cwd=ROOT, env=environment,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=800,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert not any(Path(directory).exists() for directory in own.values())
    return done


def test_the_daemon_of_the_readme() -> None:
    script = []
    for language, text in blocks("README.md", "With a daemon from the checkout"):
        script.append(f"python3 - <<'END'\n{text}END" if language == "python" else text)
    with directories("dev") as own:
        done = typed([*script, "rmdir /tmp/dev"], own)
    assert "5 file\n" in done.stdout
    if shutil.which("curl"):
        assert '"stdout":"data\\n"' in done.stdout
    assert "isolation levels:" in done.stdout
    assert done.stdout.endswith("42\n\n")
    assert "OOM_KILLED" in done.stderr
    assert "cannot" not in done.stderr


def test_the_api_by_hand() -> None:
    requires_program("curl")
    [(_, text)] = blocks("docs/api.md", "By hand")
    with running_daemon() as daemon:
        script = "set -eu\n" + text.replace("/run/sandboxd/sandboxd.sock", daemon.socket)
        done = subprocess.run(
            ["bash", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert '"error":{"code"' not in done.stdout
        for words in (
            '"stdout":"hi\\n"', '"name":"box"', '"status":"EXITED"',
            "out\n", "event: exit", "data\n", '"text":"42\\n"',
        ):  # fmt: skip
            assert words in done.stdout, words
        assert daemon.ok("GET", "/v1/sandboxes?state=ready")["sandboxes"] == []


def test_the_tutorial_as_it_is_written() -> None:
    # Else the first `./dev` of it installs the program, and says so.
    requires_program("bwrap")
    page = blocks("docs/tutorial.md")
    assert {language for language, _ in page} == {"sh", "text"}
    script = ["set -eu"]
    for language, text in page:
        if language == "sh":
            script += [text, f"printf '%s\\n' '{MARK}'"]
    with directories("tutorial") as own:
        done = typed(script, own)
    outputs = iter(done.stdout.split(f"{MARK}\n"))
    checker = doctest.OutputChecker()
    seen = ""
    for language, text in page:
        if language == "sh":
            seen = next(outputs)
        else:
            assert checker.check_output(text, seen, LOOSE), f"{text}is not\n{seen}"
