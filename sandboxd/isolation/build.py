# SPDX-License-Identifier: Apache-2.0
"""Make a sandbox's namespaces and root, and pin them.

Runs in a process of its own (spawner/builder.py) that ends afterwards, so that an idle sandbox
keeps no process. This process enters a new network namespace; bubblewrap, below, makes the root
with the ipc and uts namespaces around a holder that waits until the namespaces are pinned.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import NoReturn

from sandboxd.isolation import bubblewrap, ipc, layers, mounts, network, ownership, pins
from sandboxd.isolation.bubblewrap import Root
from sandboxd.isolation.root import describe, masks_of, shared_directories
from sandboxd.osutil import linux
from sandboxd.osutil.descriptors import closing_fd
from sandboxd.osutil.namespaces import namespace_path
from sandboxd.osutil.pidfd import has_ended, kill, open_pidfd
from sandboxd.osutil.signals import reset_signals
from sandboxd.protocol.building import BindSpec, BindVerdict, Build, HostParts
from sandboxd.protocol.specification import HostRoot, OwnRoot

_BUILD_SECONDS = 20.0
_MAX_TEXT = 4096


class BuildFailed(Exception):
    """Raised when bubblewrap could not make the root; the text is bubblewrap's."""


class NoBubblewrap(BuildFailed):
    """Raised where bubblewrap is not installed."""


def build(order: Build) -> tuple[BindVerdict, ...] | None:
    """Make and pin all that the order asks for, or nothing, and return each bind's verdict.

    Returns None and makes nothing where all pins exist, unless `anew`. Raises OSError, BuildFailed,
    BadImage, BadSource.
    """
    directory, wanted = order.pins_directory, order.pins
    pins.prepare(os.path.dirname(directory))
    if pins.are_complete(directory, wanted) and not order.anew:
        return None
    pins.remove(directory)
    os.mkdir(directory, 0o700)
    verdicts: tuple[BindVerdict, ...] = ()
    try:
        # Looked up before the network is out of reach: accounts may be kept elsewhere.
        plans = ownership.plan(order.root.binds, order.owner_uid)
        if pins.NET in wanted:
            network.enter_new(loopback=order.loopback)
            pins.pin(namespace_path("net"), directory, pins.NET)
        if pins.MNT in wanted:
            verdicts = _pin_root(order, plans)
            # Ours from here to our end.
            mounts.join(directory, [pins.IPC])
            ipc.bound()
    except BaseException:
        pins.remove(directory)
        raise
    return verdicts


def _pin_root(order: Build, plans: Sequence[ownership.Plan]) -> tuple[BindVerdict, ...]:
    """Make a root, pin the root's namespaces and return each bind's verdict.

    A mount namespace can only be pinned from an older one, so that there are no loops, and from
    Linux 6.18 on each processor numbers new namespaces by itself: the root's namespace may count as
    older than this process's. In that case the next processor makes the root.
    """
    kinds = [kind for kind in order.pins if kind != pins.NET]
    for processor in (None, *os.sched_getaffinity(0)):
        try:
            with (
                ownership.trees(plans, order.uid) as trees,
                _held_root(order, trees, processor) as pid,
            ):
                # The mount namespace first: no other pin fails with EINVAL.
                for kind in sorted(kinds, key=lambda kind: kind != pins.MNT):
                    pins.pin(namespace_path(kind, pid), order.pins_directory, kind)
            return tuple(tree.verdict for tree in trees)
        except OSError as exc:
            if exc.errno != errno.EINVAL:
                raise
            os.unlink(os.path.join(order.pins_directory, pins.MNT))
    raise BuildFailed("cannot pin a mount namespace: none counts as newer than sandboxd's own")


def try_out(order: Build) -> None:
    """Make what the order asks for, enter it as an execution would, and remove it again.

    The next child of this process is the first process of a pid namespace afterwards.
    """
    directory = order.pins_directory
    build(order)
    try:
        if pins.MNT in order.pins:
            linux.unshare(linux.CLONE_NEWPID)
        _in_child(lambda: _enter(order), "join the namespaces")
    finally:
        pins.remove(directory)


def try_host_root(root: HostRoot) -> None:
    """Make an execution's mounts at level basic, in a child. Raises OSError, BuildFailed."""
    linux.unshare(linux.CLONE_NEWPID)
    work = partial(mounts.in_host_root, root, pid_namespace=True)
    _in_child(work, "give an execution mounts of its own")


def try_layers(pins_root: str, host: HostParts) -> None:
    """Cover the host's directories as for a root. Raises OSError, BuildFailed."""
    pins.prepare(pins_root)
    shared, masks = shared_directories(host), masks_of(host)
    _in_child(lambda: _cover(shared, masks, pins_root), "give a sandbox inodes of its own")


def _cover(shared: Sequence[str], masks: Mapping[str, layers.Mask], scratch: str) -> None:
    linux.unshare(linux.CLONE_NEWNS)
    mounts.stop_propagation()
    layers.cover(shared, scratch, masks)


def _enter(order: Build) -> None:
    mounts.join(order.pins_directory, order.pins)
    if pins.MNT in order.pins:
        root = OwnRoot(masked=True, terminals=1)
        mounts.in_own_root(root, pid_namespace=True, refresh=layers.refresh)


def _in_child(work: Callable[[], None], what: str) -> None:
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException as exc:
            os.write(write_fd, str(exc).encode()[:_MAX_TEXT])
            os._exit(1)
        os._exit(0)
    os.close(write_fd)
    text = os.read(read_fd, _MAX_TEXT).decode(errors="replace")
    os.close(read_fd)
    _, status = os.waitpid(pid, 0)
    if status != 0:
        raise BuildFailed(f"cannot {what}: {text or f'wait status {status}'}")


@contextmanager
def _held_root(
    order: Build, trees: Sequence[ownership.Tree], processor: int | None
) -> Iterator[int]:
    """Yield the pid of a process in the complete root, which ends with the context.

    trees: one for each bind, with owners mapped or not. processor: the only processor that may make
    the root; None = any.
    """
    program = next((path for path in bubblewrap.PROGRAMS if os.path.exists(path)), None)
    if program is None:
        raise NoBubblewrap("bubblewrap (bwrap) is not installed")
    scratch = os.path.dirname(order.pins_directory)
    binds = ownership.placed(order.root.binds, scratch)
    root = describe(replace(order.root, binds=binds))
    hold_read, hold_write = os.pipe2(os.O_CLOEXEC)
    ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
    error_read, error_write = os.pipe2(os.O_CLOEXEC)
    info_read, info_write = os.pipe2(os.O_CLOEXEC)
    argv = bubblewrap.arguments(program, root, info_fd=info_write)
    pid = os.fork()
    if pid == 0:
        stdio = (hold_read, ready_write, error_write)
        _become_bubblewrap(argv, root, order.root.binds, trees, scratch,
                           stdio=stdio, info_fd=info_write, processor=processor)  # fmt: skip
    for fd in (hold_read, ready_write, error_write, info_write):
        os.close(fd)
    try:
        deadline = time.monotonic() + _BUILD_SECONDS
        if _read(ready_read, bubblewrap.READY, deadline) != bubblewrap.READY:
            said = _read(error_read, b"\n", time.monotonic() + 1.0).decode(errors="replace")
            raise BuildFailed(said.strip() or "bubblewrap ended without a word")
        yield int(json.loads(_read(info_read, b"}", deadline))["child-pid"])
    finally:
        # The holder reads end-of-file and ends, and bubblewrap ends with the holder.
        os.close(hold_write)
        _await_end(pid)
        for fd in (ready_read, error_read, info_read):
            os.close(fd)


def _become_bubblewrap(
    argv: list[str],
    root: Root,
    binds: Sequence[BindSpec],
    trees: Sequence[ownership.Tree],
    scratch: str,
    *,
    stdio: tuple[int, int, int],
    info_fd: int,
    processor: int | None,
) -> NoReturn:
    try:
        if processor is not None:
            os.sched_setaffinity(0, {processor})
        reset_signals()
        linux.set_parent_death_signal(signal.SIGKILL)
        _cover(root.shared, root.masks, scratch)
        ownership.put(binds, trees, scratch)
        # For the directories that bubblewrap makes.
        os.umask(0o022)
        for target, fd in enumerate(stdio):
            os.dup2(fd, target, inheritable=True)
        os.set_inheritable(info_fd, True)
        os.execve(argv[0], argv, {"PATH": os.defpath})
    except BaseException as exc:
        os.write(stdio[2], f"cannot run bubblewrap: {exc}\n".encode()[:_MAX_TEXT])
    finally:
        os._exit(127)


def _read(fd: int, end: bytes, deadline: float) -> bytes:
    """Return the bytes read until `end` or the deadline, at most _MAX_TEXT."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    text = b""
    while end not in text and len(text) < _MAX_TEXT:
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(int(left * 1000) + 1):
            break
        data = os.read(fd, _MAX_TEXT)
        if not data:
            break
        text += data
    return text


def _await_end(pid: int) -> None:
    with closing_fd(open_pidfd(pid)) as pidfd:
        if not has_ended(pidfd, within_seconds=_BUILD_SECONDS):
            kill(pidfd)
    os.waitpid(pid, 0)
