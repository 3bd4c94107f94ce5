# SPDX-License-Identifier: Apache-2.0
"""What a daemon whose sandboxes are all released may not have left on the host."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tests.harness import Daemon
from tests.system import host

CLAIMS = Path("/run/sandboxd-uids")
CGROUPS = Path("/sys/fs/cgroup")


def leftovers(daemon: Daemon) -> set[str]:
    """Processes, uids, mounts, directories, units and cgroups of sandboxes, by name."""
    owner = (daemon.state / "instance").read_text().strip()
    sandboxes = daemon.state / "sandboxes"
    found = {str(path) for name in ("home", "tmp") for path in sandboxes.glob(f"*/{name}")}
    found |= {str(path) for path in (daemon.runtime / "executions").iterdir()}
    supervised = daemon.runtime / "supervised"
    found |= {str(path) for path in supervised.glob("*.json")} if supervised.exists() else set()
    found |= {f"mount {line}" for line in _mounts() if str(daemon.state) in line}
    found |= {f"uid {uid}" for uid in _claims(owner)}
    found |= {f"process {pid}: {_about(pid)}" for pid in _shims(daemon)}
    if Path("/run/systemd/system").exists():
        kept = {f"sandboxd_{owner}.slice", f"sandboxd_{owner}-spawner.service"}
        found |= {f"unit {name}" for name in units_of(daemon) - kept}
        found |= {str(path) for path in CGROUPS.glob(f"sandboxd_{owner}.slice/*.slice")}
    return found


def units_of(daemon: Daemon) -> set[str]:
    """All loaded units of this daemon."""
    owner = (daemon.state / "instance").read_text().strip()
    return {name for name in host.sandboxd_units() if name.startswith(f"sandboxd_{owner}")}


def _mounts() -> list[str]:
    return Path("/proc/self/mountinfo").read_text().splitlines()


def _claims(owner: str) -> list[str]:
    if not CLAIMS.exists():
        return []
    found = []
    for path in CLAIMS.iterdir():
        # Other daemons' come and go.
        with suppress(FileNotFoundError):
            if path.name.isdigit() and path.read_text().startswith(f"{owner} "):
                found.append(path.name)
    return found


def spawners(daemon: Daemon) -> list[int]:
    """The spawner and its forks, the shims, which have its command line; the spawner first."""
    argument = str(daemon.runtime / "spawner.sock").encode()
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                words = Path(entry.path, "cmdline").read_bytes().split(b"\0")
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if argument in words and fields[0] != "Z":
                found[int(entry.name)] = int(fields[19])
    return sorted(found, key=lambda pid: found[pid])


def _shims(daemon: Daemon) -> list[int]:
    listening = spawner(daemon)
    return [pid for pid in spawners(daemon) if pid != listening]


def _about(pid: int) -> str:
    """Parent, state, kernel function and descriptors of a process, for whoever looks for it."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        waits = Path(f"/proc/{pid}/wchan").read_text()
        files = [os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    except OSError as error:
        return str(error)
    return f"{fields[0]}, parent {fields[1]}, in {waits}, {files}"


def spawner(daemon: Daemon) -> int | None:
    """The pid of the process that answers on the spawner's socket; None where none does."""
    inodes = _inodes(str(daemon.runtime / "spawner.sock"))
    for pid in spawners(daemon):
        try:
            targets = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        except OSError:
            continue
        if any(f"socket:[{inode}]" in targets for inode in inodes):
            return pid
    return None


def _inodes(path: str) -> set[str]:
    """Of the sockets bound to a path (proc_net(5))."""
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    words = [line.split() for line in lines]
    # Flags: __SO_ACCEPTCON, it listens.
    return {w[6] for w in words if len(w) > 7 and w[7] == path and w[3] == "00010000"}
