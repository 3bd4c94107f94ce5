# SPDX-License-Identifier: Apache-2.0
"""A sandbox's own file system in an image file: runs in a builder (spawner/builder.py).

<runtime-dir>/disks is a private tmpfs; each image is mounted there on a directory named by the
sandbox's id, so that an execution can unmount the disks of all other sandboxes at once. The room
that an image has beyond the sandbox's limit is held by root's file `ballast` in the image: so a
limit can be lowered, and is exact whatever the file system takes for metadata.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Collection
from contextlib import suppress

from sandboxd.isolation import loop, private_tmpfs
from sandboxd.osutil import linux
from sandboxd.osutil.descriptors import closing_fd, open_directory
from sandboxd.osutil.files import names_in
from sandboxd.osutil.space import space_of

DIRECTORY = "disks"
BALLAST = "ballast"
_PROGRAM_FOLDERS = ("/usr/sbin", "/sbin", "/usr/bin", "/bin")
# e2fsck(8): 1, errors were corrected, plus 2, reboot the host, which concerns a root file system.
_CORRECTED = 3
# Blocks of 4 KiB, an inode for each; no journal, which would cost 32 MiB for each sandbox: an image
# that was not unmounted is checked before the next mount.
_FORMAT = ("-q", "-F", "-t", "ext4", "-b", "4096", "-i", "4096", "-m", "0",
           "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard")  # fmt: skip
# What is deleted inside is given back to the host; no thread writes zeros for hours.
_OPTIONS = "discard,noinit_itable"
_BLOCK = 4096
_LEAST_SPARE_BYTES = 32 << 20
_MOST_RESERVED_BLOCKS = 4096
_EXT4_IOC_RESIZE_FS = 0x40086610
_MAX_TEXT = 1000


class DiskFull(Exception):
    """Raised when more is in use than a lower limit allows."""


def root_of(runtime_directory: str) -> str:
    """Return the directory below which images are mounted."""
    return os.path.join(runtime_directory, DIRECTORY)


def hold(root: str, name: str, *, image: str, size_bytes: int, gid: int) -> None:
    """Make, mount or resize the file system at root/name so that size_bytes are usable.

    gid: the group that may pass the top directory. Raises OSError and DiskFull.
    """
    private_tmpfs.prepare(root, 0o711)
    directory = os.path.join(root, name)
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    if not os.path.ismount(directory):
        if os.path.exists(image):
            _run("e2fsck", "-p", image, worst=_CORRECTED)
        else:
            _make(image, size_bytes)
        _mount(image, directory)
    os.chown(directory, 0, gid)
    os.chmod(directory, 0o710)  # noqa: S103 - the sandbox's group passes
    _set_room(directory, image, size_bytes)


def remove(root: str, name: str) -> None:
    """Unmount one disk, if mounted. The image stays. Raises OSError."""
    directory = os.path.join(root, name)
    try:
        linux.unmount(directory)
    except OSError as exc:
        # A builder killed early leaves a directory without a mount.
        if exc.errno not in (errno.EINVAL, errno.ENOENT):
            raise
    with suppress(FileNotFoundError):
        os.rmdir(directory)


def remove_others(root: str, kept: Collection[str]) -> None:
    """Unmount the disks of all sandboxes but `kept`."""
    for name in names_in(root):
        if name not in kept:
            remove(root, name)


def remove_all(root: str) -> None:
    """Unmount all disks and the private tmpfs."""
    remove_others(root, ())
    private_tmpfs.remove(root)


def _make(image: str, size_bytes: int) -> None:
    unfinished = f"{image}.new"
    with closing_fd(
        os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    ) as fd:
        os.ftruncate(fd, size_bytes + _spare_bytes(size_bytes))
    _run("mke2fs", *_FORMAT, unfinished)
    os.rename(unfinished, image)


def _spare_bytes(size_bytes: int) -> int:
    """Return the bytes for metadata: inodes take 1/16, the reserve 1/50, the ballast the rest."""
    return size_bytes // 8 + _LEAST_SPARE_BYTES


def _mount(image: str, directory: str) -> None:
    device, fd = loop.attach(image)
    try:
        linux.mount(device, directory, "ext4", linux.MS_NOSUID | linux.MS_NODEV, _OPTIONS)
    finally:
        os.close(fd)


def _set_room(directory: str, image: str, size_bytes: int) -> None:
    ballast = os.open(
        os.path.join(directory, BALLAST),
        os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o600,
    )
    try:
        room = _room(directory, image)
        if room < size_bytes:
            _grow(directory, image, size_bytes - room)
            room = _room(directory, image)
        held = os.fstat(ballast).st_size
        wanted = (room - size_bytes) // _BLOCK * _BLOCK
        if wanted > held:
            os.posix_fallocate(ballast, held, wanted - held)
        else:
            os.ftruncate(ballast, wanted)
    except OSError as exc:
        if exc.errno == errno.ENOSPC:
            raise DiskFull(f"more than {size_bytes} bytes are in use") from exc
        raise
    finally:
        os.close(ballast)


def _room(directory: str, image: str) -> int:
    """Return the bytes usable by the sandbox if there were no ballast.

    ext4 reserves a fiftieth of the disk, at most 4096 blocks (ext4_calculate_resv_clusters).
    """
    reserve = min(os.stat(image).st_size // _BLOCK // 50, _MOST_RESERVED_BLOCKS)
    return space_of(directory).total_bytes - reserve * _BLOCK


def _grow(directory: str, image: str, by_bytes: int) -> None:
    """Enlarge image, loop device and file system while mounted (Linux 3.3)."""
    size = os.stat(image).st_size + by_bytes + _spare_bytes(by_bytes)
    os.truncate(image, size)
    loop.follow_size(directory)
    with closing_fd(open_directory(directory)) as fd:
        fcntl.ioctl(fd, _EXT4_IOC_RESIZE_FS, struct.pack("=Q", size // _BLOCK))


def _run(program: str, *arguments: str, worst: int = 0) -> None:
    """Run a program of e2fsprogs. Raises OSError, with the output, for a status above `worst`."""
    paths = [os.path.join(folder, program) for folder in _PROGRAM_FOLDERS]
    path = next((path for path in paths if os.path.exists(path)), None)
    if path is None:
        raise OSError(errno.ENOENT, f"{program} is not installed (package e2fsprogs)")
    with closing_fd(os.memfd_create("said")) as said:
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        actions = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, said, 1),
                   (os.POSIX_SPAWN_DUP2, said, 2)]  # fmt: skip
        environment = {"PATH": ":".join(_PROGRAM_FOLDERS), "LANG": "C.UTF-8"}
        pid = os.posix_spawn(path, [program, *arguments], environment, file_actions=actions)
        os.close(null)
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if not 0 <= code <= worst:
            text = os.pread(said, _MAX_TEXT, 0).decode(errors="replace").strip()
            raise OSError(errno.EIO, f"{program}: {text or f'exit code {code}'}")
