# SPDX-License-Identifier: Apache-2.0
"""The system calls that the filter refuses, and their numbers. Pure tables.

Source: the kernel's arch/x86/entry/syscalls/syscall_64.tbl and scripts/syscall.tbl; the lists were
compared with systemd's SystemCallFilter=, Docker and Flatpak.
"""

from __future__ import annotations

import errno

# Machine, as uname(2) has it -> AUDIT_ARCH of linux/audit.h.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

# Calls with greater numbers were not reviewed: the filter answers as a kernel without them. x32's
# calls, which have bit 30 set, are included.
LAST_REVIEWED = 469

# Name -> numbers on x86_64 and aarch64; None where the machine has no such call.
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "_sysctl": (156, None),
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chmod": (90, None),
    "chroot": (161, 51),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "creat": (85, None),
    "create_module": (174, None),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "file_setattr": (469, 469),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "get_mempolicy": (239, 236),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "io_setup": (206, 0),
    "ioctl": (16, 29),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mbind": (237, 235),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "modify_ldt": (154, None),
    "mmap": (9, 222),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "nfsservctl": (180, 42),
    "open": (2, None),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "openat": (257, 56),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "set_mempolicy": (238, 237),
    "set_mempolicy_home_node": (450, 450),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setrlimit": (160, 164),
    "setsockopt": (54, 208),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, None),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}

# Refused whole, at every level: name -> errno.
REFUSED = {
    **dict.fromkeys(
        (
            # The mount family, by the old and the new interface.
            "mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr", "move_mount",
            "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
            "setns",
            # Programs and modules in the kernel, and kernel internals.
            "bpf", "perf_event_open", "kexec_load", "kexec_file_load", "create_module",
            "init_module", "finit_module", "delete_module", "syslog", "lookup_dcookie",
            # Keyrings have no namespace: the keyrings of a uid outlive the sandbox.
            "keyctl", "add_key", "request_key",
            # The host's own affairs.
            "reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "settimeofday",
            "clock_settime", "sethostname", "setdomainname", "vhangup", "nfsservctl", "_sysctl",
            "iopl", "ioperm", "uselib",
            # Opens files past the permissions of directories.
            "open_by_handle_at", "fanotify_init",
            # Like FS_IOC_FSSETXATTR below.
            "file_setattr",
            # A memory policy for each page of a file is charged to no cgroup.
            "mbind", "set_mempolicy_home_node",
        ),
        errno.EPERM,
    ),
    # clone3's flags lie in memory, where no filter can look; C libraries fall back to clone.
    "clone3": errno.ENOSYS,
    # io_uring's operations pass no filter.
    **dict.fromkeys(("io_uring_setup", "io_uring_enter", "io_uring_register"), errno.ENOSYS),
    # Makes races in the kernel winnable.
    "userfaultfd": errno.ENOSYS,
    # Takes from a number that the whole host shares (fs.aio-max-nr); databases and web servers go
    # on with threads where a kernel has none.
    "io_setup": errno.ENOSYS,
}  # fmt: skip

# At strict also.
REFUSED_STRICT = {
    **dict.fromkeys(
        (
            "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd",
            "kcmp", "get_mempolicy", "set_mempolicy", "migrate_pages", "move_pages", "modify_ldt",
        ),
        errno.EPERM,
    ),
    # Memory files are in no directory; programs fall back to a file.
    "memfd_create": errno.ENOSYS,
    "memfd_secret": errno.ENOSYS,
}  # fmt: skip

# Set-user-ID and set-group-ID bits (inode(7)); calls with a mode, and the index of that argument.
# Calls that open files use the mode if the flags, the argument before, say so (O_CREAT, O_TMPFILE).
SET_ID = 0o6000
CHANGES_MODE = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "mknod": 1, "mknodat": 2,
                "creat": 1}  # fmt: skip
OPENS = {"open": 2, "openat": 3}
OPEN_MAKES = 0o20000100

# CLONE_NEW* of linux/sched.h. CLONE_NEWTIME (0x80) lies in the bits that clone(2) takes as the
# child's signal: only unshare knows the flag, and no signal has that number.
NAMESPACE_FLAGS = 0x7E020080

# Requests of ioctl(2), which the kernel takes as 32 bits.
IOCTLS = (
    0x5412,  # TIOCSTI: types into its terminal
    0x541C,  # TIOCLINUX: selects and pastes on a console
    0x541D,  # TIOCCONS: takes the console's output
    0x5423,  # TIOCSETD: line disciplines, loaded as modules
    # Both set a file's project: the id, and whether new files inherit the id.
    0x401C5820,  # FS_IOC_FSSETXATTR
    0x40086602,  # FS_IOC_SETFLAGS
    # What any user may make of btrfs below a directory of his own, and rmdir(2) does not take away.
    0x5000940E,  # BTRFS_IOC_SUBVOL_CREATE
    0x50009418,  # BTRFS_IOC_SUBVOL_CREATE_V2
    0x50009401,  # BTRFS_IOC_SNAP_CREATE
    0x50009417,  # BTRFS_IOC_SNAP_CREATE_V2
    0x5000940F,  # BTRFS_IOC_SNAP_DESTROY
    0x5000943F,  # BTRFS_IOC_SNAP_DESTROY_V2
    0x4008941A,  # BTRFS_IOC_SUBVOL_SETFLAGS
)

# Of setrlimit(2): a command keeps the limit it starts with (schemes/common.py).
RLIMIT_CORE = 4

# Huge pages are a pool of the host's, which memory.max does not count (hugetlbpage.rst). Flags of
# linux/mman.h, linux/memfd.h and linux/shm.h; further flags only choose the page size.
MAP_HUGETLB, MFD_HUGETLB, SHM_HUGETLB = 0x40000, 0x4, 0o4000

# Level and name of setsockopt(2), refused: each keeps a table beside the socket that no cgroup is
# charged for, of up to 32 KiB or net.core.optmem_max.
SOCKET_OPTIONS = {
    1: (26, 51),  # SOL_SOCKET: SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF
    6: (14, 32, 38),  # IPPROTO_TCP: TCP_MD5SIG, TCP_MD5SIG_EXT, TCP_AO_ADD_KEY
    41: (6,),  # IPPROTO_IPV6: IPV6_2292PKTOPTIONS
}

# Of personality(2): Linux, Linux on 32 bits, no address space randomization (debuggers,
# sanitizers), and the query. Further flags weaken what the kernel does for every process.
PERSONALITIES = (0x0, 0x8, 0x0040000, 0x0040008, 0xFFFFFFFF)

# linux/socket.h. Every further family is a module that the host loads at first use; vsock leads
# past every network namespace to the hypervisor. A netlink socket's queue is kernel memory, charged
# to no cgroup: getifaddrs(3) fails, getaddrinfo(3) goes on as on a host without netlink.
AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
SOCK_TYPE_MASK = 0xF
# At strict TCP and UDP alone: SOCK_STREAM, SOCK_DGRAM; IPPROTO_IP (the default), TCP, UDP.
INET_TYPES = (1, 2)
INET_PROTOCOLS = (0, 6, 17)


def number(name: str, machine: str) -> int | None:
    """Return the call's number on a machine of ARCHITECTURES; None for a call the machine lacks."""
    return NUMBERS[name][list(ARCHITECTURES).index(machine)]
