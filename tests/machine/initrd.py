# SPDX-License-Identifier: Apache-2.0
"""The initial RAM disk: busybox, the modules the root needs, and one script.

Debian's own generators make an archive of tens of megabytes, which an emulated machine takes
seconds to unpack. Format: cpio "newc", kernel Documentation/driver-api/early-userspace.
"""

from __future__ import annotations

import lzma
import os
import stat
import subprocess
from pathlib import Path

from . import recipe


def write(target: Path, *, root: Path, release: str) -> None:
    """Write the RAM disk for kernel `release` of the unpacked `root`."""
    modules = _with_dependencies(root / "usr/lib/modules" / release)
    names = " ".join(name for name, _ in modules)
    script = recipe.INITIAL_PROGRAM.replace("@MODULES@", names)
    archive = bytearray()
    for directory in ("bin", "dev", "root"):
        archive += entry(directory, stat.S_IFDIR | 0o755, b"")
    archive += entry("bin/busybox", stat.S_IFREG | 0o755, (root / "usr/bin/busybox").read_bytes())
    archive += entry("init", stat.S_IFREG | 0o755, script.encode())
    for name, content in modules:
        archive += entry(f"{name}.ko", stat.S_IFREG | 0o644, content)
    archive += entry("TRAILER!!!", 0, b"")
    target.write_bytes(archive)


def entry(name: str, mode: int, content: bytes) -> bytes:
    """Return one cpio member, padded to four bytes."""
    path = name.encode() + b"\0"
    fields = (0, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
    return head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)


def load_order(dependencies: str, wanted: tuple[str, ...]) -> list[str]:
    """Return paths of modules, each after those it needs. `dependencies`: text of modules.dep."""
    needs: dict[str, list[str]] = {}
    path_of: dict[str, str] = {}
    for line in dependencies.splitlines():
        path, _, needed = line.partition(":")
        needs[path] = needed.split()
        path_of[_name(path)] = path
    ordered: list[str] = []
    for name in wanted:
        # depmod lists a module's whole closure, the nearest first.
        path = path_of[name]
        ordered += [each for each in [*reversed(needs[path]), path] if each not in ordered]
    return ordered


def _with_dependencies(modules: Path) -> list[tuple[str, bytes]]:
    built_in = {_name(path) for path in (modules / "modules.builtin").read_text().splitlines()}
    wanted = tuple(
        name for name in (*recipe.BOOT_MODULES, *recipe.ROOT_MODULES) if name not in built_in
    )
    paths = load_order((modules / "modules.dep").read_text(), wanted)
    return [(Path(path).name.split(".")[0], _module(modules / path)) for path in paths]


def _name(path: str) -> str:
    return Path(path).name.split(".")[0].replace("-", "_")


def _module(path: Path) -> bytes:
    """A module's content. Debian packs modules by xz, Ubuntu by zstd."""
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        unpack = ["zstd", "-d", "-q", "-c", os.fspath(path)]
        return subprocess.run(unpack, stdout=subprocess.PIPE, check=True, timeout=60).stdout
    return path.read_bytes()
