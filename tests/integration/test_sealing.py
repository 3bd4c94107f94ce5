# SPDX-License-Identifier: Apache-2.0
"""The host's file system in a mount namespace where nothing but one directory can be written, also
by kernels without mount_setattr and in a chroot."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import ROOT

pytestmark = pytest.mark.usefixtures("requires_root")
_SEAL = """
import errno, os, sys
sys.path.insert(0, sys.argv[1])
how, root, kept = sys.argv[2:5]
from sandboxd.isolation import mounts, sealing
from sandboxd.osutil import linux
if "old kernel" in how:
    def change_mounts(*words, **more): raise OSError(errno.ENOSYS, "no such call")
    linux.change_mounts = change_mounts
linux.unshare(linux.CLONE_NEWNS)
mounts.stop_propagation()
if "chroot" in how:
    linux.mount("/proc", root + "/proc", None, linux.MS_BIND)
    os.chroot(root); os.chdir("/")
    kept = "/kept"
linux.mount(kept, kept, None, linux.MS_BIND)
sealing.seal([kept])
for path in (kept, os.path.dirname(kept), "/"):
    name = os.path.join(path, "file")
    try:
        open(name, "x").close()
        os.unlink(name)
        print("written")
    except OSError as exc:
        print(errno.errorcode[exc.errno])
if "chroot" not in how:
    open("/dev/null", "w").write("x")
"""


@pytest.mark.parametrize("how", ["new kernel", "old kernel", "chroot", "chroot, old kernel"])
def test_only_what_is_kept_can_be_written(how: str) -> None:
    root = Path("/var/lib", f"sandboxd-test-{secrets.token_hex(4)}")
    kept = root / "kept"
    for directory in (kept, root / "proc"):
        directory.mkdir(parents=True)
    try:
        said = subprocess.run(
            [sys.executable, "-c", _SEAL, str(ROOT), how, str(root), str(kept)],
            capture_output=True, text=True, timeout=50, check=True,
        )  # fmt: skip
        assert said.stdout.split() == ["written", "EROFS", "EROFS"]
        # Outside nothing has changed.
        (root / "file").touch()
        (root / "file").unlink()
    finally:
        for directory in (kept, root / "proc", root):
            os.rmdir(directory)
