# SPDX-License-Identifier: Apache-2.0
"""System calls: namespaces, mounts, keys, and the parts of the kernel that break most often."""

from __future__ import annotations

from tests.escapes.attempt import attempt

_TERMINAL = "master, slave = os.openpty()\n"
_NEW_NAMESPACES = {
    "mount": 0x00020000, "cgroup": 0x02000000, "uts": 0x04000000, "ipc": 0x08000000,
    "user": 0x10000000, "pid": 0x20000000, "network": 0x40000000, "time": 0x80,
}  # fmt: skip
_CLONE = """
pid = call((56, 220), {flags} | signal.SIGCHLD, 0, 0, 0, 0)
if pid == 0: os._exit(0)
os.waitpid(pid, 0)
"""
_CLONE3 = """
words = (ctypes.c_uint64 * 11)({flags}, 0, 0, 0, signal.SIGCHLD)
pid = call(435, words, 88)
if pid == 0: os._exit(0)
os.waitpid(pid, 0)
"""
_MACHINE_CODE = """
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex('b814000000cd80c3'))
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
ctypes.CFUNCTYPE(ctypes.c_int)(address)() == os.getpid() or sys.exit(9)
"""
_ABSENT = "EPERM|ENOSYS"

KERNEL = (
    # -- namespaces
    *(
        attempt(f"a new {name} namespace", f"check(libc.unshare({flags}))", "EPERM")
        for name, flags in _NEW_NAMESPACES.items()
    ),
    attempt("a user namespace by clone", _CLONE.format(flags=0x10000000), "EPERM"),
    attempt("a user namespace by clone3", _CLONE3.format(flags=0x10000000), "ENOSYS"),
    attempt("a user namespace by unshare(1)", "output('unshare', '-Ur', 'true')", "refused"),
    attempt("bubblewrap inside", "output('bwrap', '--bind', '/', '/', '--unshare-user', 'true')",
            "refused", needs="has_bwrap"),
    attempt("join a namespace", "check(libc.setns(os.open('/proc/self/ns/net', 0), 0))", "EPERM"),
    # -- mounts
    attempt("mount a tmpfs", "check(libc.mount(b'x', b'/mnt', b'tmpfs', 0, None))", "EPERM"),
    attempt("bind a directory", "check(libc.mount(b'/', b'/mnt', None, 4096, None))", "EPERM"),
    attempt("remount / writable", "check(libc.mount(None, b'/proc', None, 32 | 4096, None))",
            "EPERM"),
    attempt("unmount /proc", "check(libc.umount2(b'/proc', 2))", "EPERM"),
    attempt("change the root", "os.chroot('/')", "EPERM"),
    attempt("swap the root", "call((155, 41), b'/', b'/proc/self')", "EPERM",
            outside="EINVAL|EBUSY"),
    attempt("the new mount calls: fsopen", "call(430, b'tmpfs', 0)", "EPERM"),
    attempt("the new mount calls: fspick", "call(433, -100, b'/', 0)", "EPERM",
            outside="open|EINVAL"),
    attempt("the new mount calls: open_tree", "call(428, -100, b'/', 1)", "EPERM"),
    attempt("the new mount calls: move_mount", "call(429, -1, b'', -1, b'', 0)", "EPERM",
            outside="ENOENT|EBADF"),
    attempt("the new mount calls: mount_setattr", "call(442, -100, b'/', 0, bytes(32), 32)",
            "EPERM"),
    attempt("a file by its handle", "call((304, 265), -1, bytes(128), 0)", "EPERM",
            outside="EINVAL|EBADF|ESTALE"),
    attempt("quotas", "call((179, 60), 0x800007 << 8, b'/nowhere', 0, bytes(128))", "EPERM",
            outside="EINVAL|ENOENT|ENOSYS|ENOTBLK"),
    # -- keys
    attempt("the user's keyring", "call((250, 219), 0, -4, 1)", _ABSENT),
    attempt("leave a key behind", "call((248, 217), b'user', b'sandboxd-test', b'x', 1, -2)",
            _ABSENT),
    attempt("ask for a key", "call((249, 218), b'user', b'sandboxd-none', None, 0)", _ABSENT,
            outside="ENOKEY"),
    # -- the parts that are broken most often
    attempt("io_uring", "call(425, 1, None)", "ENOSYS", outside="EFAULT|EPERM",
            rare=True),
    attempt("a BPF map", "call((321, 280), 0, struct.pack('<4I', 2, 4, 4, 1) + bytes(112), 128)",
            "EPERM"),
    attempt("performance counters", "call((298, 241), None, 0, -1, -1, 0)", "EPERM",
            outside="EFAULT"),
    attempt("page faults in user space", "call((323, 282), 0)", "ENOSYS",
            rare=True),
    attempt("watch the whole file system", "call((300, 262), 0, 0)", "EPERM",
            rare=True),
    attempt("another personality", "call((135, 92), 0x0400000)", "EPERM"),
    attempt("calls of 32-bit programs", _MACHINE_CODE, "SIGSYS", needs="is_x86",
            rare=True),
    # -- memory that no cgroup is charged for, and numbers that the whole host shares
    attempt("fill netlink queues that nobody reads",
            "left, right = (socket.socket(16, socket.SOCK_RAW, 2) for _ in range(2))\n"
            "right.bind((0, 0)); left.connect(right.getsockname()); left.send(bytes(60000))",
            "EAFNOSUPPORT"),
    attempt("have the kernel fill a netlink queue",
            "s = socket.socket(16, socket.SOCK_RAW, 0)\ns.bind((0, 0))\n"
            "s.send(struct.pack('=IHHIIB15x', 32, 18, 0x301, 1, 0, 0)); s.recv(1 << 16)",
            "EAFNOSUPPORT"),
    attempt("a memory policy for a page of a file",
            "file = os.memfd_create('x') if hasattr(os, 'memfd_create') else hidden()\n"
            "os.ftruncate(file, 1 << 20); page = mmap.mmap(file, 1 << 20)\n"
            "at = ctypes.addressof(ctypes.c_char.from_buffer(page))\n"
            "call((237, 235), at, 4096, 1, None, 0, 0)",
            "EPERM", strict="EPERM|ENOSYS", outside="open|EINVAL|EFAULT"),
    attempt("huge pages of the host's pool",
            "mmap.mmap(-1, facts['huge_page'], flags=0x40022)", "ENOMEM", needs="huge_page"),
    attempt("huge pages by a memfd", "check(libc.memfd_create(b'x', 4))", "ENOMEM",
            strict="ENOSYS", rare=True),
    attempt("huge pages by System V",
            "one = check(libc.shmget(0, facts['huge_page'], 0o5600)); libc.shmctl(one, 0, None)",
            "ENOMEM", needs="huge_page"),
    attempt("contexts of asynchronous I/O", "call((206, 0), 1, (ctypes.c_ulong * 1)())", "ENOSYS"),
    attempt("a socket's own filter",
            "code = ctypes.create_string_buffer(struct.pack('=HBBI', 6, 0, 0, 1))\n"
            "s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
            "s.setsockopt(1, 26, struct.pack('HxxxxxxP', 1, ctypes.addressof(code)))", "EPERM"),
    attempt("keys of TCP connections",
            "s = socket.socket(); s.setsockopt(6, 14, bytes(216))", "EPERM",
            outside="EINVAL|ENOPROTOOPT|open"),
    attempt("more queued signals than a uid is due",
            "ours = resource.getrlimit(resource.RLIMIT_SIGPENDING)\n"
            "ours[1] > 16384 or hidden()", "hidden", needs="many_signals"),
    # -- terminals
    attempt("type into a terminal", _TERMINAL + "fcntl.ioctl(slave, 0x5412, b'x')", "EPERM"),
    attempt("paste into a console", _TERMINAL + "fcntl.ioctl(slave, 0x541C, bytes([2]))", "EPERM",
            outside="ENOTTY|EINVAL"),
    attempt("a line discipline", _TERMINAL + "fcntl.ioctl(slave, 0x5423, bytes(4))", "EPERM"),
    attempt("take the console", _TERMINAL + "fcntl.ioctl(slave, 0x541D)", "EPERM",
            outside="open|EBUSY"),
    # -- the host's own affairs
    attempt("reboot", "check(libc.syscall(*[ctypes.c_long(n) for n in"
            " ((169 if facts['is_x86'] else 142), 0, 0, 0, 0)]))", "EPERM", outside="EINVAL"),
    attempt("another kernel", "call((246, 104), 0, 0, None, 0x1000)", "EPERM",
            outside="EINVAL|ENOSYS|EADDRNOTAVAIL|EBUSY"),
    attempt("load a module", "call((175, 105), None, 0, b'')", "EPERM",
            outside="EFAULT|ENOEXEC|ENOSYS|EINVAL"),
    attempt("unload a module", "call((176, 106), b'sandboxd_none', 2048)", "EPERM",
            outside="ENOENT|ENOSYS"),
    attempt("swap", "check(libc.swapon(b'/nowhere', 0))", "EPERM", outside="ENOENT|ENOSYS"),
    attempt("process accounting", "check(libc.acct(b'/nowhere'))", "EPERM",
            outside="ENOENT|ENOSYS"),
    attempt("the clock", "call((164, 170), None, None)", "EPERM"),
    attempt("one of the clocks", "call((227, 112), 99, bytes(16))", "EPERM", outside="EINVAL"),
    attempt("the host's name", "check(libc.sethostname(b'x', 1))", "EPERM"),
    attempt("the domain's name", "check(libc.setdomainname(b'x', 1))", "EPERM"),
    attempt("the kernel's log", "call((103, 116), 10, None, 0)", "EPERM"),
    attempt("hang up the terminal", "call((153, 58))", "EPERM"),
    attempt("ports of the machine", "call(172, 0)", "EPERM", needs="is_x86",
            rare=True),
)  # fmt: skip

# Not a way out by itself, but kernel that strict keeps from the command: name -> open elsewhere.
STRICT_ONLY = (
    attempt("trace one's own child",
            "pid = os.fork()\nif pid == 0: signal.pause()\n"
            "try: check(libc.ptrace(0x4206, pid, None, None))\n"
            "finally: os.kill(pid, 9); os.waitpid(pid, 0)",
            basic="open", standard="open", strict="EPERM"),
    attempt("read one's own child's memory", "call((310, 270), os.getpid(), None, 0, None, 0, 0)",
            basic="open", standard="open", strict="EPERM"),
    attempt("a file in memory alone", "os.memfd_create('x')",
            basic="open", standard="open", strict="ENOSYS"),
    attempt("memory policies", "call((239, 236), None, None, 0, 0, 0)",
            basic="open|ENOSYS", standard="open|ENOSYS", strict="EPERM", outside="open|ENOSYS"),
    attempt("descriptor tables of the processor", "call(154, 0, None, 0)",
            basic="open|ENOSYS", standard="open|ENOSYS", strict="EPERM", outside="open|ENOSYS",
            needs="is_x86"),
    attempt("sockets other than TCP and UDP",
            "socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)",
            basic="open|EPROTONOSUPPORT|ENOPROTOOPT", standard="open|EPROTONOSUPPORT|ENOPROTOOPT",
            strict="EPROTONOSUPPORT", rare=True),
)  # fmt: skip
