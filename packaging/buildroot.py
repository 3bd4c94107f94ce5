# SPDX-License-Identifier: Apache-2.0
"""A Debian root for package builds, made once by mmdebstrap, and commands inside without network.

Needs root on a Debian host. Roots are kept below ~/.cache/sandboxd/deb, or $SANDBOXD_BUILD_CACHE,
and never modified once made: a command sees the root read-only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import bootstrap

SUITE = "trixie"
BUILD_PACKAGES = (
    "debhelper",
    "dh-python",
    "pybuild-plugin-pyproject",
    "python3-aiohttp",
    "python3-all",
    "python3-dbus-fast",
    "python3-hatchling",
    "python3-jinja2",
    "python3-pydantic",
    "python3-rich",
)
LINT_PACKAGES = (*BUILD_PACKAGES, "lintian")
# Files for people, which no build needs.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")
WORK = "/build"
_PROGRAMS = {"mmdebstrap": "mmdebstrap", "unshare": "util-linux"}
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_MAKE_SECONDS = 1800
# Mounts end with the mount namespace; sh is PID 1 in the namespace and reaps.
_ENTER = """\
root=$1 work=$2 directory=$3; shift 3
mount --bind "$root" "$root"
mount --bind "$work" "$root/build"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/tmp"
mount -o remount,bind,ro "$root"
chroot "$root" env --chdir="$directory" "$@"
exit $?
"""


def ensure(packages: tuple[str, ...], suite: str = SUITE) -> Path:
    """Return a root with these packages, made if missing. Raises bootstrap.SetupError."""
    _install_programs()
    named = hashlib.sha256("\n".join((suite, *packages, *LEFT_OUT)).encode()).hexdigest()[:16]
    cache = _cache()
    root = cache / f"root-{suite}-{named}"
    with _lock(cache / f"{root.name}.lock"):
        if not root.is_dir():
            bootstrap.say(f"making a Debian root to build in, {root} (once, about a minute)")
            _make(root, suite, packages)
    return root


def run(
    root: Path,
    command: list[str],
    *,
    work: Path,
    directory: str = WORK,
    environment: Mapping[str, str] | None = None,
    seconds: float = 600,
) -> subprocess.CompletedProcess[str]:
    """Run a command as root in the root, with `work` as /build and without network.

    stderr is part of stdout. Raises subprocess.TimeoutExpired.
    """
    plain = {"HOME": "/tmp", "LANG": "C.UTF-8", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}  # noqa: S108
    namespaces = ["--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--kill-child"]
    return subprocess.run(
        ["unshare", *namespaces, "sh", "-e", "-c", _ENTER, "sh", root, work, directory, *command],
        env=plain | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
    )


def cache_directory(name: str) -> Path:
    """Return a directory of the cache, made if missing."""
    path = _cache() / name
    path.mkdir(exist_ok=True)
    return path


def _cache() -> Path:
    given = os.environ.get("SANDBOXD_BUILD_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(given) if given else Path(base, "sandboxd", "deb")
    cache.mkdir(parents=True, exist_ok=True)
    return cache.resolve()


def _install_programs() -> None:
    missing = set(bootstrap.lacking(_PROGRAMS))
    if not _KEYRING.exists():
        missing.add("debian-archive-keyring")
    if os.geteuid() != 0:
        raise bootstrap.SetupError("cannot make or enter a Debian root: run it as root")
    if missing and not (
        bootstrap.may_install_packages() and bootstrap.apt_install(sorted(missing))
    ):
        raise bootstrap.SetupError(f"cannot build: this host lacks {', '.join(sorted(missing))}")


def _make(root: Path, suite: str, packages: tuple[str, ...]) -> None:
    made = Path(tempfile.mkdtemp(prefix="making-", dir=root.parent))
    left_out = [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
    # mmdebstrap ends with this process: a partial root is useless.
    command = [
        "setpriv",
        "--pdeathsig",
        "TERM",
        "mmdebstrap",
        "--mode=root",
        "--variant=apt",
        "--format=directory",
        *left_out,
    ]
    command += [f"--include={','.join(packages)}", suite, str(made)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=_MAKE_SECONDS,
        )  # fmt: skip
        if done.returncode:
            tail = "\n".join(done.stdout.splitlines()[-20:])
            raise bootstrap.SetupError(f"`{' '.join(command)}` exited {done.returncode}:\n{tail}")
        (made / WORK.lstrip("/")).mkdir()
        made.rename(root)
    finally:
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
