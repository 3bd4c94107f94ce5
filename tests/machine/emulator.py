# SPDX-License-Identifier: Apache-2.0
"""QEMU from the default suite, unpacked beside the image and started by its own loader.

Whatever release the host is, every machine runs on the same emulator, and none gets installed.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import recipe
from .building import run

_LIBRARIES = "usr/lib/x86_64-linux-gnu"
# Where Debian puts firmware and option ROMs.
_DATA = ("usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu")


@dataclass(frozen=True, slots=True)
class Emulator:
    """An unpacked tree of QEMU's packages with all they need."""

    directory: Path

    def machine(self) -> list[str]:
        """Return the command of the emulator, to be followed by its options."""
        data = [word for each in _DATA for word in ("-L", os.fspath(self.directory / each))]
        return [*self._program("qemu-system-x86_64"), *data]

    def image_tool(self) -> list[str]:
        """Return the command of qemu-img."""
        return self._program("qemu-img")

    def environment(self) -> dict[str, str]:
        """Return what the programs must find in their environment."""
        return {"QEMU_MODULE_DIR": os.fspath(self.directory / _LIBRARIES / "qemu")}

    def _program(self, name: str) -> list[str]:
        loader = self.directory / "usr/lib64/ld-linux-x86-64.so.2"
        libraries = self.directory / _LIBRARIES
        program = self.directory / "usr/bin" / name
        return [os.fspath(loader), "--library-path", os.fspath(libraries), os.fspath(program)]


def ensure(cache: Path, log: int) -> Path:
    """Return the tree for the recipe, unpacked first if the cache has none. Needs root."""
    wanted = repr((recipe.SUITE, recipe.EMULATOR_PACKAGES)).encode()
    target = cache / f"emulator-{hashlib.sha256(wanted).hexdigest()[:16]}"
    if not target.is_dir():
        with tempfile.TemporaryDirectory(prefix="build-", dir=cache) as work:
            tree = Path(work, "tree")
            packages = f"--include={','.join(recipe.EMULATOR_PACKAGES)}"
            bootstrap = ["mmdebstrap", "--mode=root", "--variant=extract", "--format=directory"]
            run([*bootstrap, packages, recipe.SUITE, os.fspath(tree)], log)
            tree.chmod(0o755)
            tree.rename(target)
    return target
