# SPDX-License-Identifier: Apache-2.0
"""Ways in which people run one command under limits without us, as far as this host has them.

All run the same command under the same limits: 256 MiB, one processor, 64 processes.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from .samples import Way

COMMAND = ("/bin/true",)
LIMITS = {"memory_bytes": 256 << 20, "cpus": 1.0, "pids": 64}
_PROPERTIES = [
    f"--property={name}"
    for name in ("MemoryMax=256M", "MemorySwapMax=0", "CPUQuota=100%", "TasksMax=64")
]
_BWRAP = [
    "bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
    "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc",
    "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-all", "--die-with-parent",
]  # fmt: skip
_SCOPE = ["systemd-run", "--quiet", "--scope", "--collect", *_PROPERTIES]


def runner(argv: Sequence[str]) -> Way:
    """A way that runs `argv` and raises when it does not exit with 0."""

    def run() -> None:
        subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, check=True, timeout=120,
        )  # fmt: skip

    return run


def fork_exec() -> None:
    """The floor: what a process costs at all."""
    pid = os.posix_spawn(COMMAND[0], COMMAND, os.environ)
    _, status = os.waitpid(pid, 0)
    if status:
        raise OSError(f"wait status {status}")


def _root(scratch: Path) -> Path:
    """A root for containers, to have the host's /usr mounted in it."""
    root = scratch / "root"
    for name in ("usr", "proc", "dev", "tmp", "etc"):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "lib", "lib64"):
        if not (root / name).is_symlink():
            (root / name).symlink_to(f"usr/{name}")
    return root


def _crun(scratch: Path, *, systemd: bool) -> list[str]:
    """A bundle with the host's /usr, read-only."""
    bundle = scratch / ("bundle-systemd" if systemd else "bundle")
    bundle.mkdir(exist_ok=True)
    root = _root(scratch)
    resources = {
        "memory": {"limit": LIMITS["memory_bytes"], "swap": LIMITS["memory_bytes"]},
        "cpu": {"quota": 100000, "period": 100000},
        "pids": {"limit": LIMITS["pids"]},
    }
    spec = {
        "ociVersion": "1.0.2",
        "process": {
            "args": list(COMMAND), "cwd": "/", "env": ["PATH=/usr/bin"],
            "user": {"uid": 0, "gid": 0}, "noNewPrivileges": True,
        },
        "root": {"path": str(root), "readonly": True},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"]},
        ],
        "linux": {
            "namespaces": [{"type": t} for t in ("pid", "mount", "ipc", "uts", "network")],
            "resources": resources,
        },
    }  # fmt: skip
    (bundle / "config.json").write_text(json.dumps(spec))
    manager = ["--systemd-cgroup"] if systemd else []
    return ["crun", *manager, "run", "--bundle", str(bundle), f"figures-{os.getpid()}"]


def available(scratch: Path) -> dict[str, Way]:
    """The ways that work here, by name: each was tried once."""
    isolate = ["isolate", "--silent", "--processes=64", "--mem=262144", "--run", "--", *COMMAND]
    tried: dict[str, Callable[[], list[str]]] = {
        "bwrap": lambda: [*_BWRAP, *COMMAND],
        "systemd-run --scope": lambda: [*_SCOPE, *COMMAND],
        "systemd-run --scope + bwrap": lambda: [*_SCOPE, *_BWRAP, *COMMAND],
        "systemd-run --wait --pipe": lambda: [
            "systemd-run", "--quiet", "--wait", "--pipe", "--collect", *_PROPERTIES, *COMMAND
        ],
        "crun, cgroup files": lambda: _crun(scratch, systemd=False),
        "crun, systemd": lambda: _crun(scratch, systemd=True),
        "podman run": lambda: [
            "podman", "run", "--rm", "--memory=256m", "--cpus=1", "--pids-limit=64",
            "--network=none", "--volume=/usr:/usr:ro", "--rootfs", str(_root(scratch)), *COMMAND
        ],
        "firejail": lambda: ["firejail", "--quiet", "--noprofile", "--private", *COMMAND],
        "isolate": lambda: isolate,
    }  # fmt: skip
    ways: dict[str, Way] = {"fork + exec": fork_exec}
    for name, argv in tried.items():
        if shutil.which(name.replace(",", " ").split()[0]) is None:
            continue
        way = runner(argv())
        try:
            way()
        except (OSError, subprocess.SubprocessError):
            continue
        ways[name] = way
    return ways
