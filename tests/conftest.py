# SPDX-License-Identifier: Apache-2.0
"""Markers by folder, probes of what this host can do, and the rule that skips are not success.

A probe tries the thing itself. What a test needs and the host lacks skips it; with
SANDBOXD_TEST_STRICT=1 it fails it, so that a green strict run has proven everything it names.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import inspect
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

TESTS = Path(__file__).resolve().parent
FOLDER_MARKERS = {
    "system": "system",
    "packaging": "packaging",
    "benchmarks": "benchmark",
    "soak": "soak",
}
# An id of no passwd file; root may give files to it, nobody else may.
ANOTHER_UID = 1879113727
# What a scope is asked for, and where and how the kernel shows that it got it.
CONTROLLER_PROBES = {
    "cpu": ("CPUQuota=50%", "cpu.max", "50000 100000"),
    "memory": ("MemoryMax=64M", "memory.max", "67108864"),
    "pids": ("TasksMax=50", "pids.max", "50"),
}
LOG_CHARACTERS = 6000
# Else each of hundreds of daemons compiles all sources, which is a third of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
BUCKET = re.compile(r"sandboxd-[0-9a-f]{2}\.slice")


def is_strict() -> bool:
    return os.environ.get("SANDBOXD_TEST_STRICT", "") not in {"", "0"}


def unmet(prerequisite: str) -> NoReturn:
    """End the running test for want of `prerequisite`: skip it, or fail it in a strict run."""
    if is_strict():
        pytest.fail(f"prerequisite not met: {prerequisite}", pytrace=False)
    pytest.skip(prerequisite)


def requires_program(name: str) -> None:
    """End the running test, as `unmet` does, where PATH has no program of this name."""
    if shutil.which(name) is None:
        unmet(f"program {name}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by their folder; one that needs a host of its own runs only when asked for.

    Asked for means: with -m, or with a path in or below the folder.
    """
    named = [Path(argument.partition("::")[0]).resolve() for argument in config.args]
    kept: list[pytest.Item] = []
    dropped: list[pytest.Item] = []
    for item in items:
        parts = item.path.relative_to(TESTS).parts if item.path.is_relative_to(TESTS) else ()
        marker = FOLDER_MARKERS.get(parts[0]) if parts else None
        if marker is not None:
            item.add_marker(marker)
            folder = TESTS / parts[0]
            asked_for = config.option.markexpr or any(p.is_relative_to(folder) for p in named)
            (kept if asked_for else dropped).append(item)
        else:
            kept.append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run in which no test got as far as passing is not green."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus != pytest.ExitCode.OK or reporter is None or session.config.option.collectonly:
        return
    if reporter.stats.get("skipped") and not reporter.stats.get("passed"):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


# Of the old kind, which Debian 12's pluggy knows.
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Show the end of the daemon's log with a failure."""
    outcome = yield
    report = outcome.get_result()
    daemon = getattr(item, "funcargs", {}).get("daemon")
    log = getattr(daemon, "log", None)
    if report.failed and log is not None and log.exists():
        report.sections.append(("daemon log", log.read_text(errors="replace")[-LOG_CHARACTERS:]))


@functools.cache
def can_change_owners(scratch: Path) -> bool:
    probe = scratch / "owner-probe"
    probe.touch()
    try:
        os.chown(probe, ANOTHER_UID, ANOTHER_UID)
    except OSError:
        return False
    return True


@functools.cache
def scope_output(*arguments: str) -> str | None:
    """Run a command in a transient scope and return its output; None if that cannot be done."""
    command = ["systemd-run", "--scope", "--quiet", "--collect", *arguments]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def can_limit(controller: str) -> bool:
    """Say whether a scope's limit on `controller` arrives in its cgroup file."""
    asked, attribute, value = CONTROLLER_PROBES[controller]
    show = f'cat "/sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/{attribute}"'
    output = scope_output(f"--property={asked}", "--", "sh", "-c", show)
    return output is not None and output.strip() == value


@pytest.fixture(scope="session")
def requires_root(tmp_path_factory: pytest.TempPathFactory) -> None:
    if not can_change_owners(tmp_path_factory.getbasetemp()):
        unmet("root (may not give a file to another uid)")


@pytest.fixture(scope="session")
def requires_filter() -> None:
    from sandboxd.isolation import seccomp

    if (missing := seccomp.missing()) is not None:
        unmet(f"filters of system calls ({missing})")


@pytest.fixture(scope="session")
def requires_bubblewrap() -> None:
    """For tests whose sandboxes are at level standard."""
    command = ["bwrap", "--ro-bind", "/", "/", "true"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    except OSError as error:
        unmet(f"bubblewrap ({error.strerror})")
    if done.returncode != 0:
        unmet(f"bubblewrap ({done.stderr.decode(errors='replace').strip()})")


@pytest.fixture(scope="session")
def requires_systemd() -> None:
    if scope_output("--", "true") is None:
        unmet("systemd as PID 1 (cannot start a transient scope)")


@pytest.fixture(scope="session")
def requires_cgroup() -> Callable[[str], None]:
    """Return a function that ends the test unless systemd can limit a controller by cgroup v2."""

    def require(controller: str) -> None:
        if not can_limit(controller):
            unmet(f"cgroup v2 controller {controller} (a scope's limit does not arrive)")

    return require


@pytest.fixture
def alone() -> Iterator[None]:
    """Lets no other test that asks for this run beside: a host with two supervisors that have a
    bomb each is a busy one, and their precision is not what is promised."""
    with Path(tempfile.gettempdir(), f"sandboxd-alone-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def soak_count() -> Callable[[int], int]:
    """Return a function that scales a soak test's full count by SANDBOXD_SOAK (default 0.1)."""
    share = float(os.environ.get("SANDBOXD_SOAK") or "0.1")
    return lambda full: max(1, round(full * share))


def command_of(pid: str) -> str:
    try:
        text = (
            Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
        return text or f"a zombie of {Path('/proc', pid, 'comm').read_text().strip()}"
    except FileNotFoundError:
        return "gone"


def left_behind() -> set[str]:
    """Name the children of this process and, where systemd runs, the units of sandboxes."""
    found = set()
    for children in Path("/proc/self/task").glob("*/children"):
        found |= {f"child {pid} ({command_of(pid)})" for pid in children.read_text().split()}
    # A user has none, nor is every host's bus open to users.
    if os.geteuid() == 0 and Path("/run/systemd/system").exists():
        units = subprocess.run(
            ["systemctl", "list-units", "--all", "--plain", "--no-legend", "sandboxd-*"],
            capture_output=True,
            text=True,
            check=True,
        )
        names = {line.split()[0] for line in units.stdout.splitlines()}
        # Buckets hold no limits and no processes, and may stay.
        found |= {f"unit {name}" for name in names if not BUCKET.fullmatch(name)}
    return found


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail the session's last test if tests left children or units behind."""
    before = left_behind()
    yield
    left = left_behind() - before
    assert not left, f"left behind by this session: {sorted(left)}"
