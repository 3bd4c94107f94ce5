# SPDX-License-Identifier: Apache-2.0
"""File systems made for a test, and daemons whose state is on one."""

from __future__ import annotations

import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.conftest import requires_program
from tests.harness import Daemon

SIZE = "256M"


def run(*command: str) -> str:
    """Output of a command that must succeed; one that this host lacks is not met."""
    requires_program(command[0])
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    return done.stdout


@contextmanager
def mounted(kind: str, path: Path, size: str = SIZE) -> Iterator[None]:
    """A new file system at `path`: tmpfs; overlay on the path's own; btrfs or ext4 on a loop image,
    ext4 on a device-mapper volume (dm) on one, or with user quota switched on (ext4-quota).

    size: with a suffix as of mount(8). The file system's top has the mode that `path` had.
    """
    mode = stat.S_IMODE(path.stat().st_mode)
    with ExitStack() as undo:
        if kind == "tmpfs":
            run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path))
        elif kind == "overlay":
            layers = path.with_name(f"{path.name}.layers")
            undo.callback(shutil.rmtree, layers)
            for name in ("lower", "upper", "work"):
                (layers / name).mkdir(parents=True, mode=0o711)
            options = ",".join(f"{name}dir={layers / name}" for name in ("lower", "upper", "work"))
            run("mount", "-t", "overlay", "-o", options, "overlay", str(path))
        elif kind == "dm":
            device = undo.enter_context(mapped(path, size))
            run("mke2fs", "-q", "-t", "ext4", device)
            run("mount", "-t", "ext4", device, str(path))
        elif kind == "btrfs":
            image = path.with_name(f"{path.name}.img")
            undo.callback(image.unlink, missing_ok=True)
            run("truncate", "-s", size, str(image))
            run("mkfs.btrfs", "-q", str(image))
            run("mount", "-t", "btrfs", "-o", "loop", str(image), str(path))
        else:
            image = path.with_name(f"{path.name}.img")
            undo.callback(image.unlink, missing_ok=True)
            features = ["-O", "quota", "-E", "quotatype=usrquota"] if kind == "ext4-quota" else []
            run("mke2fs", "-q", "-t", "ext4", *features, str(image), size)
            options = "loop,usrquota" if kind == "ext4-quota" else "loop"
            run("mount", "-t", "ext4", "-o", options, str(image), str(path))
        # Lazily: a process that does not die must not keep the test's own clearing up.
        undo.callback(run, "umount", "--lazy", str(path))
        path.chmod(mode)
        yield


@contextmanager
def mapped(path: Path, size: str) -> Iterator[str]:
    """A linear device-mapper volume on a loop image beside `path`."""
    image = path.with_name(f"{path.name}.img")
    name = f"test-{path.name}"
    with ExitStack() as undo:
        undo.callback(image.unlink)
        run("truncate", "-s", size, str(image))
        loop = run("losetup", "--find", "--show", str(image)).strip()
        undo.callback(run, "losetup", "--detach", loop)
        sectors = image.stat().st_size // 512
        run("dmsetup", "create", name, "--table", f"0 {sectors} linear {loop} 0")
        # A file system that was unmounted lazily may still be there.
        undo.callback(run, "dmsetup", "remove", "--deferred", name)
        yield f"/dev/mapper/{name}"


@contextmanager
def daemon_on(
    kind: str,
    *,
    size: str = SIZE,
    below: str = "state",
    **settings: str,
) -> Iterator[Daemon]:
    """A daemon whose state directory, or the one that `below` names, is a new file system."""
    made = Daemon(**{"SANDBOX_MEMORY_LIMIT_BYTES": "96M", **settings})
    try:
        with mounted(kind, getattr(made, below), size):
            try:
                made.start()
                yield made
            finally:
                made.end()
    finally:
        made.remove()


def du_bytes(daemon: Daemon, sandbox_id: str) -> int:
    """What du(1) says of a sandbox's home, /tmp and files under way."""
    own = daemon.runtime / "disks" / sandbox_id
    top = own if own.exists() else daemon.state / "sandboxes" / sandbox_id
    paths = [str(top / name) for name in ("home", "tmp", "staging")]
    return sum(int(line.split()[0]) for line in run("du", "-s", "-B1", *paths).splitlines())
