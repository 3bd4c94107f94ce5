# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.machine import cli, image, runs, session, source
from tests.machine.host import MachineError
from tests.machine.machine import Machine

ROOT = Path(__file__).parents[3]


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> list[session.Job]:
    jobs: list[session.Job] = []

    def run(job: session.Job) -> list[int]:
        jobs.append(job)
        return [5 for _ in job.commands]

    monkeypatch.setattr(session, "run", run)
    return jobs


def test_the_commands_status_is_returned(job: list[session.Job]) -> None:
    assert cli.main(["run", "--legacy", "--timeout", "7", "--", "sh", "-c", "exit 5"]) == 5
    assert job[0].commands == [["sh", "-c", "exit 5"]]
    assert job[0].seconds == 7
    assert "systemd.unified_cgroup_hierarchy=0" in job[0].kernel_arguments


@pytest.mark.parametrize(
    ("statuses", "status"),
    [([0, 0], 0), ([0, 1], 1), ([1, 0], 1), ([5, 0], 0), ([5, 1], 1), ([5, 5], 5)],
)
def test_each_run_counts_and_one_may_have_no_tests(
    monkeypatch: pytest.MonkeyPatch, statuses: list[int], status: int
) -> None:
    monkeypatch.setattr(session, "run", lambda job: statuses)
    assert cli.main(["test"]) == status


def test_a_suite_has_runs_of_its_own(job: list[session.Job]) -> None:
    cli.main(["test"])
    cli.main(["test", "--suite", "bookworm"])
    assert [one.suite for one in job] == ["trixie", "bookworm"]
    assert [len(one.commands) for one in job] == [2, 2]
    package, _ = job[1].commands
    assert package[-1] == "tests/system/test_package.py"


def test_what_is_left_to_the_full_count_exists_and_is_run_there(job: list[session.Job]) -> None:
    for soak in ("0.1", "", "1"):
        cli.main(["test", "--env", f"SANDBOXD_SOAK={soak}"])
    for path in runs.FULL_COUNT_ALONE:
        file, _, name = path.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text() if name else (ROOT / file).exists()
        left_out = [f"--deselect={path}" in one.commands[0] for one in job]
        assert left_out == [True, True, False]


def test_the_packages_libraries_are_there_for_any_test_that_needs_them(
    job: list[session.Job],
) -> None:
    for suite in ("noble", "trixie"):
        cli.main(["test", "--suite", suite, "tests/unit/machine/test_cli.py"])
    older, newer = (one.commands[0] for one in job)
    assert (older[0], newer[0]) == ("sh", "python3")
    assert older[-len(newer) :] == newer


def test_each_suite_has_an_image_of_its_own() -> None:
    assert image.recipe_hash("trixie") != image.recipe_hash("bookworm")


def test_a_caller_keeps_its_signal_handlers(job: list[session.Job]) -> None:
    """pytest is one: `timeout` has to be able to end it."""
    before = [signal.getsignal(number) for number in signal.valid_signals()]
    cli.main(["run", "--", "true"])
    assert [signal.getsignal(number) for number in signal.valid_signals()] == before


def test_sigterm_ends_the_program_by_an_exception(tmp_path: Path) -> None:
    """So that what it began is undone."""
    code = (
        "import contextlib, os, runpy, signal\n"
        "from tests.machine import cli\n"
        "def main():\n"
        "    with contextlib.closing(open('left', 'w')):\n"
        "        try:\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "        finally:\n"
        "            os.unlink('left')\n"
        "cli.main = main\n"
        "runpy.run_module('tests.machine', run_name='__main__')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_unknown_arguments_of_test_are_pytests(job: list[session.Job]) -> None:
    cli.main(["test", "--env", "A=B=C", "-k", "oom and not slow", "-x", "--", "--timeout=9"])
    system, contract = job[0].commands
    # Behind the default ones: the last -k is the one that counts.
    assert system[-4:] == contract[-4:] == ["-k", "oom and not slow", "-x", "--timeout=9"]
    assert "tests/system" in system
    assert "tests/contract" in contract
    assert job[0].environment["A"] == "B=C"
    assert job[0].environment["SANDBOXD_TEST_STRICT"] == "1"


def test_a_named_path_takes_the_place_of_all_system_tests(job: list[session.Job]) -> None:
    cli.main(["test", "tests/unit/test_layers.py::test_x"])
    (command,) = job[0].commands
    assert [each for each in command if each.startswith("tests/")] == [
        "tests/unit/test_layers.py::test_x"
    ]


def test_unknown_arguments_elsewhere_are_refused(job: list[session.Job]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", "--nonsense", "true"])
    assert ended.value.code == 2
    assert not job


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "a b"])
def test_a_machines_name_is_one_plain_file_name(name: str) -> None:
    with pytest.raises(MachineError, match="as a machine's name"):
        Machine.named(name)


def test_the_source_is_what_git_tracks_or_would_add(tmp_path: Path) -> None:
    for name in (".gitignore", "tracked", "gone", "new", "ignored"):
        (tmp_path / name).write_text("ignored\n")
    git = ["git", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "--quiet"], check=True, timeout=30)
    subprocess.run([*git, "add", "tracked", "gone"], check=True, timeout=30)
    (tmp_path / "gone").unlink()
    assert source.files(tmp_path) == [".gitignore", "new", "tracked"]


def test_a_built_package_goes_along(tmp_path: Path) -> None:
    subprocess.run(["git", "-C", str(tmp_path), "init", "--quiet"], check=True, timeout=30)
    (tmp_path / ".gitignore").write_text("/build/\n")
    (tmp_path / "build/deb").mkdir(parents=True)
    for name in ("sandboxd_1_all.deb", "sandboxd_1~bundled_amd64.deb", "stamp-native"):
        (tmp_path / "build/deb" / name).touch()
    packages = ["build/deb/sandboxd_1_all.deb", "build/deb/sandboxd_1~bundled_amd64.deb"]
    assert source.files(tmp_path) == [".gitignore", *packages]


def test_a_directory_that_is_no_checkout_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="cannot list the checkout"):
        source.files(tmp_path)
