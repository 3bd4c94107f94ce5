# SPDX-License-Identifier: Apache-2.0
"""The script that runs in a command's unit, run here with files in the place of pipes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.machine.command import script, status_of


def run(directory: Path, argv: list[str], environment: dict[str, str]) -> tuple[str, str, bytes]:
    request = {"argv": argv, "environment": environment, "directory": "/"}
    environment_of_unit = {**os.environ, "LEAKED": "1"}
    subprocess.run(
        ["/bin/sh", "-c", script(request, directory)],
        check=True,
        timeout=30,
        env=environment_of_unit,
    )
    texts = [(directory / name).read_bytes() for name in ("stdout", "stderr", "report")]
    return texts[0].decode(), texts[1].decode(), texts[2]


PATH = {"PATH": os.defpath}


def test_arguments_arrive_as_they_were(tmp_path: Path) -> None:
    arguments = ["a b", "$HOME", "'", '"', "", "*", "-x", "new\nline"]
    out, _, report = run(tmp_path, ["printf", "<%s>", *arguments], PATH)
    assert out == "".join(f"<{each}>" for each in arguments)
    assert status_of(report) == (0, None)


def test_the_environment_is_only_what_was_asked(tmp_path: Path) -> None:
    out, _, _ = run(tmp_path, ["env"], {**PATH, "ODD": "a 'b' $c"})
    assert sorted(out.splitlines()) == ["ODD=a 'b' $c", f"PATH={os.defpath}"]


@pytest.mark.parametrize(
    ("argv", "status"),
    [(["sh", "-c", "exit 7"], 7), (["sh", "-c", "kill -9 $$"], 137), (["no-such-program"], 127)],
)
def test_the_status_is_the_shells(tmp_path: Path, argv: list[str], status: int) -> None:
    assert status_of(run(tmp_path, argv, PATH)[2]) == (status, None)


def test_the_command_cannot_reach_the_report(tmp_path: Path) -> None:
    _, err, report = run(tmp_path, ["sh", "-c", "echo 0 >&3"], PATH)
    assert "3" in err
    assert status_of(report) == (2, None)


@pytest.mark.parametrize("report", [b"", b"begun\n", b"begun\n0", b"0\n", b"begun\n0\n0\n"])
def test_a_report_without_an_end_is_no_status(report: bytes) -> None:
    assert status_of(report) == (None, "the command's unit was killed")
