# SPDX-License-Identifier: Apache-2.0
"""The times of output: a file beside each spool, written by the shim and read by the daemon.

A header, then entries of fixed size: the first byte of a piece of output, and how many seconds
after the start of the execution the shim read the piece. Output up to the next entry was read at
that time or later, by less than the precision. Times are the wall clock's time of the start plus
the boot's clock, as for the end of an execution: no step of the wall clock moves the times.

The last entry may be torn, or zeros where the host went down before the entry reached the disk.
"""

from __future__ import annotations

import struct

SUFFIX = ".times"
MAGIC = b"sbtimes1"
# Magic, seconds since 1970 of the start, precision in seconds.
HEADER = struct.Struct("=8sdd")
# Offset in bytes, seconds since the start.
ENTRY = struct.Struct("=Qd")
MAX_ENTRIES = 4094
MAX_BYTES = HEADER.size + MAX_ENTRIES * ENTRY.size
