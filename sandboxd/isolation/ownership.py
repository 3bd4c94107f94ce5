# SPDX-License-Identifier: Apache-2.0
"""Map the owner of a bind's files to the sandbox: MOUNT_ATTR_IDMAP of mount_setattr(2).

One user and one group of the host are mapped, those of the bound path. Files that the sandbox makes
there belong on the host to that user and group. Files of any other user appear inside as the
overflow user's: readable by mode alone, and writable by no mode, since the kernel refuses to write
an inode whose ids have no mapping.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from sandboxd.isolation.sources import BadSource, open_source
from sandboxd.osutil import linux
from sandboxd.osutil.files import write_text
from sandboxd.osutil.namespaces import open_namespace
from sandboxd.protocol.building import BindSpec, BindVerdict

# An answer has room for sixteen (spawner/builder.py).
_MAX_DETAIL = 160
_WHY = {
    errno.EINVAL: "its file system, or one mounted below it, has no idmapped mounts on this kernel",
    errno.EPERM: "sandboxd may not map its owners here, or they are mapped already",
    errno.ENOSYS: "this kernel has no idmapped mounts (Linux 5.12)",
}


class _NotMapped(Exception):
    """Raised with the reason."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The host's user and group whose files a sandbox is to have; text: for people."""

    uid: int
    gid: int
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A decision on a bind's owner: the owner to map, or None and the reason in `why`.

    is_refused: whether the path is not bound at all.
    """

    source: str
    owner: Owner | None
    why: str
    is_refused: bool = False


@dataclass(frozen=True, slots=True)
class Tree:
    """A bind with ownership settled: a detached mapped mount, or None for the host's mount.

    detail: to whom new files belong, or why no owner is mapped.
    """

    fd: int | None
    detail: str

    @property
    def verdict(self) -> BindVerdict:
        """What the daemon is told."""
        return BindVerdict(self.fd is not None, self.detail[:_MAX_DETAIL])


def refusal(
    uid: int, gid: int, *, sandbox_owner: int, writable: bool, groups: Collection[int] | None
) -> str | None:
    """Return why a bind's owner must not be mapped; None where a mapping grants no new access.

    Pure. uid, gid: the bound path's. sandbox_owner: the uid that asked for the sandbox. groups: all
    groups of the path's owner, None = no account.
    """
    if uid == 0:
        return "it belongs to root, whose files are never a sandbox's: chown it to a user"
    if sandbox_owner == 0 and not writable:
        return "it is read-only, and belongs to another user than the sandbox"
    if sandbox_owner not in (0, uid):
        return f"it belongs to uid {uid}, and the sandbox to uid {sandbox_owner}"
    if groups is None:
        return f"uid {uid}, to whom it belongs, has no account on this host"
    if gid == 0 or gid not in groups:
        return f"its group, gid {gid}, is root's or not one of its owner's: chgrp it"
    return None


def plan(binds: Sequence[BindSpec], sandbox_owner: int) -> list[Plan]:
    """Decide on the owner of each bind. Raises BadSource."""
    return [_plan(bind.source, bind.writable, sandbox_owner) for bind in binds]


def _plan(source: str, writable: bool, sandbox_owner: int) -> Plan:
    try:
        with _opened(source) as fd:
            status = os.fstat(fd)
    except OSError as exc:
        return Plan(source, None, exc.strerror or str(exc))
    name, groups = _account(status.st_uid)
    why = refusal(
        status.st_uid,
        status.st_gid,
        sandbox_owner=sandbox_owner,
        writable=writable,
        groups=groups,
    )
    if why is not None:
        return Plan(source, None, why)
    return Plan(source, Owner(status.st_uid, status.st_gid, f"{name} (uid {status.st_uid})"), "")


@contextmanager
def _opened(source: str) -> Iterator[int]:
    # Has an automounted file system mounted, as a walk in steps would not.
    os.stat(source)
    fd = open_source(source)
    try:
        yield fd
    finally:
        os.close(fd)


def _account(uid: int) -> tuple[str, Collection[int] | None]:
    """Return name and groups of a user of the host; ("", None) without an account."""
    # Only where there are binds.
    import pwd

    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return "", None
    return entry.pw_name, os.getgrouplist(entry.pw_name, entry.pw_gid)


@contextmanager
def trees(plans: Sequence[Plan], sandbox_uid: int) -> Iterator[list[Tree]]:
    """Yield the tree of each plan, open as long as the context.

    sandbox_uid: also the sandbox's gid. A host or file system without idmapped mounts is no error.
    """
    with ExitStack() as close:
        found = []
        for one in plans:
            try:
                fd, detail = _open(one, sandbox_uid)
            except _NotMapped as exc:
                found.append(Tree(None, str(exc)))
                continue
            close.callback(os.close, fd)
            found.append(Tree(fd, detail))
        yield found


def _open(one: Plan, sandbox_uid: int) -> tuple[int, str]:
    if one.owner is None:
        raise _NotMapped(one.why)
    with ExitStack() as undo:
        try:
            with _opened(one.source) as fd:
                tree = linux.open_tree(f"/proc/self/fd/{fd}")
            undo.callback(os.close, tree)
            status = os.fstat(tree)
            if (status.st_uid, status.st_gid) != (one.owner.uid, one.owner.gid):
                raise _NotMapped("it was given to somebody else just now")
            with _user_namespace(one.owner, sandbox_uid) as namespace:
                linux.map_owners(tree, namespace)
        except BadSource as exc:
            raise _NotMapped(str(exc)) from exc
        except OSError as exc:
            raise _NotMapped(_WHY.get(exc.errno or 0, str(exc))) from exc
        undo.pop_all()
    return tree, f"what it makes there belongs to {one.owner.text}"


@contextmanager
def _user_namespace(owner: Owner, sandbox_uid: int) -> Iterator[int]:
    """Yield a user namespace that maps the owner's ids to the sandbox's, without a process.

    The namespace is a descriptor, closed with the context. Raises OSError.
    """
    held_read, held_write = os.pipe2(os.O_CLOEXEC)
    made_read, made_write = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        _hold_namespace(held_read, held_write, made_write)
    os.close(held_read)
    os.close(made_write)
    with ExitStack() as close:
        close.callback(os.waitpid, pid, 0)
        # The process ends by this.
        close.callback(os.close, held_write)
        close.callback(os.close, made_read)
        number = int(os.read(made_read, 16) or errno.ECHILD)
        if number != 0:
            raise OSError(number, f"user namespace: {os.strerror(number)}")
        # user_namespaces(7): id inside, id outside, how many; an idmapped mount takes the first
        # for what is on disk.
        for name, host_id in (("uid_map", owner.uid), ("gid_map", owner.gid)):
            write_text(f"/proc/{pid}/{name}", f"{host_id} {sandbox_uid} 1")
        fd = open_namespace("user", pid)
    try:
        yield fd
    finally:
        os.close(fd)


def _hold_namespace(held_read: int, held_write: int, made_write: int) -> None:
    """Keep a new user namespace until the parent closes the pipe, in a child; never returns."""
    try:
        os.close(held_write)
        number = 0
        try:
            linux.unshare(linux.CLONE_NEWUSER)
        except OSError as exc:
            number = exc.errno or errno.EIO
        os.write(made_write, str(number).encode())
        os.read(held_read, 1)
    finally:
        os._exit(0)


def put(binds: Sequence[BindSpec], found: Sequence[Tree], scratch: str) -> None:
    """Mount the binds in this mount namespace, where `placed` says. Raises OSError, BadSource."""
    if not binds:
        return
    linux.mount("binds", scratch, "tmpfs", linux.MS_NODEV | linux.MS_NOSUID, "size=64k")
    for number, (bind, tree) in enumerate(zip(binds, found, strict=True)):
        target = _place(scratch, number)
        if tree.fd is not None:
            _make_mount_point(target, tree.fd)
            linux.mount_tree(tree.fd, target)
            continue
        # Opened in this mount namespace: mounts of others cannot be bound.
        with _opened(bind.source) as fd:
            _make_mount_point(target, fd)
            linux.mount(f"/proc/self/fd/{fd}", target, None, linux.MS_BIND | linux.MS_REC)


def _make_mount_point(target: str, fd: int) -> None:
    """Make a directory for a directory, and a file for anything else."""
    if stat.S_ISDIR(os.fstat(fd).st_mode):
        os.mkdir(target)
    else:
        os.mknod(target, stat.S_IFREG)


def placed(binds: Sequence[BindSpec], scratch: str) -> tuple[BindSpec, ...]:
    """Return the binds, with the sources replaced by where `put` mounts them."""
    return tuple(replace(bind, source=_place(scratch, number)) for number, bind in enumerate(binds))


def _place(scratch: str, number: int) -> str:
    return os.path.join(scratch, str(number))


def try_out(binds: Sequence[BindSpec], sandbox_uid: int) -> list[str]:
    """Return for each path that an admin allows why the owner's files stay out of reach, or "".

    "" also where the path works unmapped: its owner is never mapped, and the mode suffices.
    """
    # Root's own sandboxes map writable binds of any owner.
    plans = [_told(bind.source) for bind in binds]
    with trees(plans, sandbox_uid) as found:
        return [
            "" if tree.fd is not None or _is_fine(one, bind) else tree.detail[:_MAX_DETAIL]
            for one, tree, bind in zip(plans, found, binds, strict=True)
        ]


def _told(source: str) -> Plan:
    try:
        return _plan(source, True, 0)
    except BadSource as exc:
        return Plan(source, None, str(exc), is_refused=True)


def _is_fine(one: Plan, bind: BindSpec) -> bool:
    """Whether a path whose owner is never mapped can be used as listed nevertheless."""
    if one.owner is not None or one.is_refused:
        return False
    try:
        mode = os.stat(bind.source).st_mode
    except OSError:
        return False
    return not bind.writable or bool(mode & stat.S_IWOTH)
