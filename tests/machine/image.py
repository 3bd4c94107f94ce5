# SPDX-License-Identifier: Apache-2.0
"""Build the machine's image once per recipe: a root file system, a kernel and a RAM disk."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import emulator, initrd, recipe
from .building import run
from .emulator import Emulator
from .host import MachineError, cache_directory, install_programs, say

HERE = Path(__file__).resolve().parent
# Debian 12 packs its kernel by lz4, later ones by zstd. Source: lz4_Frame_format.md, Legacy frame.
_LZ4 = b"\x02\x21\x4c\x18"
# Sources whose text is part of the image or decides about it.
_HASHED = ("recipe.py", "image.py", "initrd.py", "emulator.py", *recipe.AGENT_FILES)


@dataclass(frozen=True, slots=True)
class Image:
    """A finished image; its files are never written again."""

    directory: Path

    @property
    def emulator(self) -> Emulator:
        return Emulator((self.directory / "emulator").resolve())

    @property
    def root(self) -> Path:
        return self.directory / "root.ext4"

    @property
    def kernel(self) -> Path:
        return self.directory / "kernel"

    @property
    def initrd(self) -> Path:
        return self.directory / "initrd"


def ensure(suite: str) -> Image:
    """Return the recipe's image, built first if the cache has none. Raises MachineError."""
    install_programs()
    cache = cache_directory()
    image = Image(cache / f"image-{recipe_hash(suite)}")
    with _lock(cache / "build.lock"):
        if not image.directory.is_dir():
            _build(image, suite, cache)
    return image


def recipe_hash(suite: str) -> str:
    """Return the name that this checkout's recipe has in the cache."""
    digest = hashlib.sha256(suite.encode())
    for name in _HASHED:
        digest.update((HERE / name).read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def others() -> list[Path]:
    """Return the cache's images and emulators that this checkout's recipe does not use."""
    cache = cache_directory()
    current = [Image(cache / f"image-{recipe_hash(suite)}") for suite in recipe.SUITES]
    used = {path for one in current for path in (one.directory, one.emulator.directory)}
    found = [*cache.glob("image-*"), *cache.glob("emulator-*")]
    return sorted(path for path in found if path not in used)


def _build(image: Image, suite: str, cache: Path) -> None:
    if os.geteuid() != 0:
        raise MachineError(
            "cannot build the image: making a root file system needs root",
            hint=f"run: sudo SANDBOXD_MACHINE_CACHE={cache} python3 -m tests.machine build",
        )
    say(f"building the image of {suite} (once per recipe, about two minutes)")
    with tempfile.TemporaryDirectory(prefix="build-", dir=cache) as work:
        root, made = Path(work, "root"), Path(work, "image")
        made.mkdir()
        with Path(work, "log").open("w+") as log:
            (made / "emulator").symlink_to(emulator.ensure(cache, log.fileno()))
            keyring = _keyring(suite, Path(work), log.fileno())
            bootstrap = _mmdebstrap(suite, root, keyring)
            run(bootstrap, log.fileno(), environment={**os.environ, "INITRD": "No"})
            _add_files(root)
            release = next((root / "usr/lib/modules").iterdir()).name
            _extract_kernel(root / f"boot/vmlinuz-{release}", made / "kernel", log.fileno())
            initrd.write(made / "initrd", root=root, release=release)
            run(_mke2fs(made / "root.ext4", root), log.fileno())
            # mke2fs does not count what it copies in towards the quotas; status 1 is "repaired".
            run(["e2fsck", "-fy", os.fspath(made / "root.ext4")], log.fileno(), accepted=(0, 1))
        made.rename(image.directory)
    say(f"image is {image.directory}")


def _keyring(suite: str, work: Path, log: int) -> Path | None:
    """The keys of an archive that is not Debian's, from a package of Debian's."""
    package = recipe.SUITES[suite].keyring
    if package is None:
        return None
    tree = work / "keyring"
    options = ["--mode=root", "--variant=extract", "--format=directory", f"--include={package}"]
    run(["mmdebstrap", *options, recipe.SUITE, os.fspath(tree)], log)
    return tree / "usr/share/keyrings"


def _mmdebstrap(suite: str, root: Path, keyring: Path | None) -> list[str]:
    wanted = recipe.SUITES[suite]
    options = [f"--dpkgopt=path-exclude={path}" for path in recipe.PATHS_LEFT_OUT]
    if keyring:
        options.append(f"--keyring={keyring}")
    if wanted.hook:
        options.append(f"--customize-hook={wanted.hook}")
    return [
        "mmdebstrap",
        "--mode=root",
        "--variant=apt",
        "--format=directory",
        *options,
        f"--components={wanted.components}",
        f"--include={','.join(wanted.packages)}",
        suite,
        os.fspath(root),
    ]


def _mke2fs(target: Path, root: Path) -> list[str]:
    features = ["-t", "ext4", "-O", recipe.ROOT_FEATURES, "-E", "quotatype=usrquota:grpquota"]
    quick = ["-q", "-F", "-m", "0", "-d", os.fspath(root)]
    return ["mke2fs", *features, *quick, os.fspath(target), f"{recipe.IMAGE_BYTES // 1024}k"]


def _add_files(root: Path) -> None:
    for name in recipe.DIRECTORIES:
        _inside(root, name).mkdir(parents=True, exist_ok=True)
    for name, text in recipe.FILES.items():
        path = _inside(root, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in recipe.FILES_REMOVED:
        _inside(root, name).unlink(missing_ok=True)
    for name, target in recipe.LINKS.items():
        _link(_inside(root, name), target)
    for unit in recipe.MASKED_UNITS:
        _link(_inside(root, f"/etc/systemd/system/{unit}"), "/dev/null")
    package = _inside(root, recipe.AGENT_DIRECTORY) / "tests/machine"
    package.mkdir(parents=True)
    for name in recipe.AGENT_FILES:
        shutil.copyfile(HERE / name, package / name)
    # Nothing is older than this: no unit that waits for a changed /usr has work to do.
    for name in ("etc/.updated", "var/.updated"):
        (root / name).touch()


def _inside(root: Path, name: str) -> Path:
    return root / name.lstrip("/")


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _extract_kernel(source: Path, target: Path, log: int) -> None:
    """Write the ELF kernel inside a bzImage: the emulator would need seconds to unpack it.

    Source: kernel Documentation/arch/x86/boot.rst, payload_offset and payload_length.
    """
    data = source.read_bytes()
    setup_sectors = data[0x1F1] or 4
    offset, length = struct.unpack_from("<II", data, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    # The payload ends with its unpacked size in four bytes, which are not part of the stream.
    payload = data[start : start + length - 4]
    packed = target.with_suffix(".packed")
    packed.write_bytes(payload)
    into = [] if payload.startswith(_LZ4) else ["-o"]
    unpack = ["zstd" if into else "lz4", "-d", "-q", "-f", os.fspath(packed)]
    run([*unpack, *into, os.fspath(target)], log)
    packed.unlink()


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
