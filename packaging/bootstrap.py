# SPDX-License-Identifier: Apache-2.0
"""Set-up for `./dev`: a Python with the libraries of a command, installed if missing.

Needs no more than a minimal Debian's python3 (3.11 or later). pip and apt-get are called by package
name with the host's own configuration.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# The first Debian with new enough packages.
DEBIAN_WITH_LIBRARIES = 13
CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


class Library(NamedTuple):
    name: str
    oldest: tuple[int, int]
    debian_package: str


RUN_LIBRARIES = (
    Library("aiohttp", (3, 11), "python3-aiohttp"),
    Library("dbus-fast", (2, 44), "python3-dbus-fast"),
    Library("jinja2", (3, 1), "python3-jinja2"),
    Library("pydantic", (2, 10), "python3-pydantic"),
    Library("rich", (13, 9), "python3-rich"),
)
TEST_LIBRARIES = (
    Library("hypothesis", (6, 130), "python3-hypothesis"),
    Library("pytest", (8, 3), "python3-pytest"),
    Library("pytest-timeout", (2, 3), "python3-pytest-timeout"),
    Library("pytest-xdist", (3, 6), "python3-pytest-xdist"),
)
# Program -> Debian package. Without bubblewrap a daemon run by root has no isolation level
# standard.
RUN_PROGRAMS = {"bwrap": "bubblewrap"}
# For tests that start a bus, a disk or a repository, or type on a terminal. Further programs of
# tests are essential in Debian, or runtimes whose tests are skipped without the runtime
# (tests/unit/test_dev.py has the list).
TEST_PROGRAMS = {
    **RUN_PROGRAMS,
    "btrfs": "btrfs-progs",
    "curl": "curl",
    "dbus-daemon": "dbus-daemon",
    "git": "git",
    "groff": "groff-base",
    "mke2fs": "e2fsprogs",
    "mkfs.btrfs": "btrfs-progs",
    "strace": "strace",
    "tmux": "tmux",
}
# Each set includes the previous sets: packaging/requirements-SET.txt has the additions.
SETS = ("run", "test", "lint")
# Linters come from the venv alone, for the same result on every host.
SYSTEM_LIBRARIES = {"run": RUN_LIBRARIES, "test": RUN_LIBRARIES + TEST_LIBRARIES}


class SetupError(Exception):
    """Raised when set-up cannot go on; the text says what to do."""


def say(text: str) -> None:
    print(f"dev: {text}", file=sys.stderr, flush=True)


def too_old(libraries: tuple[Library, ...]) -> list[Library]:
    """Return the libraries that this Python lacks or has in too old a version."""

    def is_new_enough(library: Library) -> bool:
        try:
            version = metadata.version(library.name)
        except metadata.PackageNotFoundError:
            return False
        return tuple(int(part) for part in re.findall(r"\d+", version)[:2]) >= library.oldest

    return [library for library in libraries if not is_new_enough(library)]


def os_release() -> dict[str, str]:
    """Return the fields of os-release(5); {} if the file is missing."""
    try:
        return platform.freedesktop_os_release()
    except OSError:
        return {}


def debian_release() -> int:
    """Return Debian's major version: 0 if this is no Debian, 99 for testing and unstable."""
    release = os_release()
    if release.get("ID") != "debian":
        return 0
    return int(release.get("VERSION_ID", "99").partition(".")[0])


def is_debian_like() -> bool:
    """Return whether packages have Debian's names, as on Ubuntu (ID_LIKE)."""
    release = os_release()
    return "debian" in {release.get("ID"), *release.get("ID_LIKE", "").split()}


def is_debians_python() -> bool:
    return Path(sys.executable).resolve().parent == Path("/usr/bin") and sys.prefix == "/usr"


def may_install_packages() -> bool:
    return os.geteuid() == 0 and is_debian_like() and shutil.which("apt-get") is not None


def apt_install(packages: list[str]) -> bool:
    """Install Debian packages as root; on failure print the cause and return False."""
    say(f"installing Debian packages with apt-get: {' '.join(packages)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600"]
    succeeded = False
    # A failed update may be a single stale source: only the install counts.
    for arguments in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        command = [*apt, *arguments]
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        succeeded = done.returncode == 0
        if not succeeded:
            say(f"`{' '.join(command)}` exited with {done.returncode}: {last_line(done.stderr)}")
    return succeeded


def install_cpython_tests() -> None:
    """As root on Debian, install CPython's own tests for the system's Python."""
    version = Path("/usr/bin/python3").resolve().name.removeprefix("python")
    if may_install_packages() and not Path(f"/usr/lib/python{version}/test/test_os.py").exists():
        apt_install([f"libpython{version}-testsuite"])


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no output"


def checkout_is_writable() -> bool:
    return os.access(ROOT, os.W_OK)


def private_directory() -> Path:
    """Return the directory of venv and caches: the checkout, or if read-only the user's cache."""
    if checkout_is_writable():
        return ROOT
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "sandboxd" / hashlib.sha256(os.fsencode(ROOT)).hexdigest()[:16]


def requirements(wanted: str) -> list[Path]:
    names = SETS[: SETS.index(wanted) + 1]
    return [ROOT / "packaging" / f"requirements-{name}.txt" for name in names]


def stamp(wanted: str, python: Path) -> str:
    """Return a digest of the inputs of a venv with the set `wanted`."""
    digest = hashlib.sha256(os.fsencode(python.resolve()))
    for path in requirements(wanted):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def read_stamps(venv: Path) -> dict[str, str]:
    try:
        stamps: dict[str, str] = json.loads((venv / "dev-stamps.json").read_text())
    except (OSError, ValueError):
        return {}
    return stamps


def holds(venv: Path, wanted: str) -> bool:
    return read_stamps(venv).get(wanted) == stamp(wanted, venv / "bin" / "python")


def venv_python(wanted: str) -> Path:
    """Return the Python of a private venv that holds the set `wanted`; make or fill it first."""
    directory = private_directory()
    # A checkout that is read-only for this user may have been set up by the owner.
    for venv in (ROOT / ".venv", directory / ".venv"):
        if holds(venv, wanted):
            return venv / "bin" / "python"
    venv = directory / ".venv"
    if directory != ROOT:
        say(f"the checkout {ROOT} is not writable: using {directory}")
    require_venv_module()
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"cannot make a place for the private venv: {error}; set HOME or XDG_CACHE_HOME to a"
            " directory of your own"
        ) from error
    # Closed, and thus unlocked, when this process ends or executes the command.
    lock = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("waiting for another ./dev that is setting up")
        fcntl.flock(lock, fcntl.LOCK_EX)
    if not holds(venv, wanted):
        fill_venv(venv, wanted)
    os.close(lock)
    return venv / "bin" / "python"


def fill_venv(venv: Path, wanted: str) -> None:
    python = venv / "bin" / "python"
    stamps = read_stamps(venv)
    if stamps.get("python") != str(python.resolve()):
        say(f"making a private venv in {venv} with {sys.executable} {platform.python_version()}")
        checked([sys.executable, "-m", "venv", "--clear", str(venv)])
        stamps = {"python": str(python.resolve())}
    files = requirements(wanted)
    say(f"installing pinned wheels with pip: {', '.join(path.name for path in files)}")
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--no-input", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
    checked(pip + [argument for path in files for argument in ("-r", str(path))])
    for held in SETS[: SETS.index(wanted) + 1]:
        stamps[held] = stamp(held, python)
    partial = venv / "dev-stamps.json.new"
    partial.write_text(json.dumps(stamps))
    partial.replace(venv / "dev-stamps.json")


def oldest_libraries() -> str:
    """Return a directory of the oldest supported libraries, to precede a venv's own in sys.path."""
    pins = ROOT / "packaging/requirements-oldest.txt"
    python = venv_python("test")
    name = hashlib.sha256(pins.read_bytes() + os.fsencode(python.resolve())).hexdigest()[:16]
    target = private_directory() / "build" / f"oldest-{name}"
    if not target.is_dir():
        say(f"installing the oldest libraries with pip in {target}")
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += ["--no-input", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
        checked([*pip, "--target", str(partial), "-r", str(pins)])
        partial.rename(target)
    return str(target)


def require_venv_module() -> None:
    """Make sure that this Python can make a venv and that pip can check certificates."""
    packages = []
    if importlib.util.find_spec("ensurepip") is None:
        packages.append("python3-venv")
    if is_debian_like() and not CA_BUNDLE.exists():
        packages.append("ca-certificates")
    if not packages:
        return
    if may_install_packages():
        apt_install(packages)
        importlib.invalidate_caches()
    if importlib.util.find_spec("ensurepip") is None:
        raise SetupError(
            f"{sys.executable} cannot make a venv (no ensurepip); as root run:"
            f" apt-get update && apt-get install {' '.join(packages)}"
        )
    if "ca-certificates" in packages and not CA_BUNDLE.exists():
        say("no CA certificates, pip may be refused; as root: apt-get install ca-certificates")


def lacking(programs: dict[str, str]) -> list[str]:
    """Return the packages of the missing programs, without duplicates."""
    missing = [package for program, package in programs.items() if not shutil.which(program)]
    return list(dict.fromkeys(missing))


def find_run_programs() -> None:
    """Install the programs that a daemon starts; the daemon itself reports missing ones."""
    missing = lacking(RUN_PROGRAMS)
    if missing and may_install_packages():
        apt_install(missing)


def find_test_programs() -> None:
    """Install the programs that tests start, or print which tests cannot run."""
    missing = lacking(TEST_PROGRAMS)
    if missing and not (may_install_packages() and apt_install(missing)):
        say(f"tests that need {', '.join(missing)} cannot run")


def checked(command: list[str]) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise SetupError(f"`{' '.join(command)}` exited with {done.returncode}:\n{done.stdout}")


def set_up(wanted: str) -> str:
    """Return a Python that can import the set `wanted`, after installing missing libraries."""
    libraries = SYSTEM_LIBRARIES.get(wanted)
    if libraries is None:
        return str(venv_python(wanted))
    if wanted == "test":
        find_test_programs()
    else:
        find_run_programs()
    missing = too_old(libraries)
    with_packages = debian_release() >= DEBIAN_WITH_LIBRARIES and is_debians_python()
    if missing and with_packages and may_install_packages():
        packages = [library.debian_package for library in missing]
        if Path("/run/systemd/system").exists():
            packages.append("python3-pystemd")
        if apt_install(packages):
            importlib.invalidate_caches()
            missing = too_old(libraries)
    return str(venv_python(wanted)) if missing else sys.executable


def child_environment() -> dict[str, str]:
    environment = dict(os.environ)
    inherited = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{ROOT}:{inherited}" if inherited else str(ROOT)
    if not checkout_is_writable():
        caches = private_directory()
        environment["HYPOTHESIS_STORAGE_DIRECTORY"] = str(caches / "hypothesis")
        environment["MYPY_CACHE_DIR"] = str(caches / "mypy")
        environment["RUFF_CACHE_DIR"] = str(caches / "ruff")
        given = environment.get("PYTEST_ADDOPTS", "")
        environment["PYTEST_ADDOPTS"] = f"{given} -o cache_dir={caches / 'pytest'}".strip()
    return environment
