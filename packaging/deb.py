#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build the Debian package: `./dev deb [--bundled] [--output DIRECTORY] [--force]`.

The native package is for Debian 13 and later, with the distribution's libraries. The bundled
package includes the libraries, below /usr/lib/sandboxd, for Debian 12 and Ubuntu 24.04. Both are
built in a Debian 13 root without network (buildroot.py), from a copy of `PARTS`; the same sources
give the same bytes. An up-to-date output is not built again.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import bootstrap
import buildroot
import bundle

ROOT = Path(__file__).resolve().parent.parent
# The sources of a package.
PARTS = (
    "LICENSE", "README.md", "SECURITY.md", "debian", "docs", "packaging", "pyproject.toml",
    "sandboxd", "units",
)  # fmt: skip
_NOT_COPIED = shutil.ignore_patterns("__pycache__", ".*", "made", "*.pyc", "sandboxd.debhelper.log")
# build-essential has compilers, which no package here needs.
_BUILD = "dpkg-checkbuilddeps -I && dpkg-buildpackage --no-check-builddeps --no-sign --build=binary"
_STAMP = "stamp"


class BuildFailed(bootstrap.SetupError):
    """Raised when the package could not be built; the text has the end of the log."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of package: native or bundled."""

    name: str
    is_bundled: bool

    @property
    def pattern(self) -> str:
        """Glob pattern of the package's file name."""
        return "sandboxd_*~bundled_*.deb" if self.is_bundled else "sandboxd_*_all.deb"


NATIVE = Kind("native", is_bundled=False)
BUNDLED = Kind("bundled", is_bundled=True)


def build(kind: Kind, output: Path, *, force: bool = False) -> Path:
    """Build the package in `output` unless up to date; return the file.

    Raises bootstrap.SetupError, OSError.
    """
    output.mkdir(parents=True, exist_ok=True)
    with _lock(output / ".lock"), tempfile.TemporaryDirectory(dir=output, prefix="work-") as work:
        tree = Path(work, "tree", "sandboxd")
        stage(tree, kind)
        stamp = output / f"{_STAMP}-{kind.name}"
        digest = _digest(tree)
        built = sorted(output.glob(kind.pattern))
        if not force and len(built) == 1 and stamp.exists() and stamp.read_text() == digest:
            return built[0]
        stamp.unlink(missing_ok=True)
        for old in built:
            old.unlink()
        made = make(buildroot.ensure(buildroot.BUILD_PACKAGES), tree)
        for file in made.parent.glob("sandboxd_*"):
            shutil.copyfile(file, output / file.name)
        stamp.write_text(digest)
        return output / made.name


def stage(tree: Path, kind: Kind) -> None:
    """Copy the sources, with modes and times independent of the checkout."""
    tree.mkdir(parents=True)
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, tree / part, ignore=_NOT_COPIED)
        else:
            shutil.copyfile(ROOT / part, tree / part)
    if kind.is_bundled:
        bundle.adapt(tree)
    for path in [tree, *tree.rglob("*")]:
        is_program = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if is_program else 0o644)


def make(root: Path, tree: Path, *, environment: dict[str, str] | None = None) -> Path:
    """Build a staged tree in a root; return the package beside the tree. Raises BuildFailed."""
    directory = f"{buildroot.WORK}/{tree.name}"
    done = buildroot.run(
        root, ["sh", "-c", _BUILD], work=tree.parent, directory=directory, environment=environment
    )
    built = sorted(tree.parent.glob("sandboxd_*.deb"))
    if done.returncode or len(built) != 1:
        tail = "\n".join(done.stdout.splitlines()[-40:])
        raise BuildFailed(f"`{_BUILD}` exited with {done.returncode}:\n{tail}")
    return built[0]


def version(tree: Path = ROOT) -> str:
    """Return the version in debian/changelog."""
    first = (tree / "debian/changelog").read_text().splitlines()[0]
    match = re.fullmatch(r"sandboxd \((\S+)\) \S+; urgency=\w+", first)
    if match is None:
        raise BuildFailed(f"cannot read debian/changelog: {first!r}")
    return match[1]


def _digest(tree: Path) -> str:
    digest = hashlib.sha256("\n".join(buildroot.BUILD_PACKAGES).encode())
    for path in sorted(tree.rglob("*")):
        digest.update(f"{path.relative_to(tree)} {path.stat().st_mode:o}\n".encode())
        if path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main(arguments: list[str]) -> int:
    """Build a package; return the exit code."""
    parser = argparse.ArgumentParser(prog="./dev deb", description=__doc__)
    parser.add_argument("--bundled", action="store_true", help="with libraries of its own")
    parser.add_argument("--output", type=Path, default=ROOT / "build/deb", metavar="DIRECTORY")
    parser.add_argument("--force", action="store_true", help="build even what is built already")
    options = parser.parse_args(arguments)
    kind = BUNDLED if options.bundled else NATIVE
    os.umask(0o022)
    try:
        print(build(kind, options.output, force=options.force))
    except (bootstrap.SetupError, OSError) as error:
        bootstrap.say(f"cannot build the package: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
