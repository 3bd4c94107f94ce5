# SPDX-License-Identifier: Apache-2.0
"""Loop devices: files as disks (loop(4), linux/loop.h; Linux 5.8)."""

from __future__ import annotations

import errno
import fcntl
import os
import struct

from sandboxd.osutil.descriptors import closing_fd

_LOOP_SET_CAPACITY = 0x4C07
_LOOP_CONFIGURE = 0x4C0A
_LOOP_CTL_GET_FREE = 0x4C82
_AUTOCLEAR = 4
_DIRECT_IO = 16
# struct loop_config: fd, block size; of struct loop_info64 flags and name; the rest is zeros.
_CONFIG = struct.Struct("=II 40x 12x I 64s 64x 32x 16x 64x")
_ATTEMPTS = 100


def attach(image: str) -> tuple[str, int]:
    """Return a new loop device of the file, and a descriptor: the device goes with the last user.

    The image is read and written past the page cache where the file system can
    (LO_FLAGS_DIRECT_IO), so that pages are not cached twice. Raises OSError.
    """
    backing = os.open(image, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        for _ in range(_ATTEMPTS):
            device = f"/dev/loop{fcntl.ioctl(control, _LOOP_CTL_GET_FREE)}"
            fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
            name = os.fsencode(image)[-63:]
            config = _CONFIG.pack(backing, 0, _AUTOCLEAR | _DIRECT_IO, name)
            try:
                fcntl.ioctl(fd, _LOOP_CONFIGURE, config)
            except OSError as exc:
                os.close(fd)
                # Another process took the free device first.
                if exc.errno != errno.EBUSY:
                    raise
            else:
                return device, fd
        raise OSError(errno.EBUSY, "others take every free loop device")
    finally:
        os.close(control)
        os.close(backing)


def follow_size(directory: str) -> None:
    """Tell the loop device mounted at the directory that the image has grown. Raises OSError."""
    number = os.stat(directory).st_dev
    name = os.path.basename(os.readlink(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"))
    with closing_fd(os.open(f"/dev/{name}", os.O_RDWR | os.O_CLOEXEC)) as fd:
        fcntl.ioctl(fd, _LOOP_SET_CAPACITY)
