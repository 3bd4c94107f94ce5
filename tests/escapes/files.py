# SPDX-License-Identifier: Apache-2.0
"""Files: the host's, other sandboxes', devices, and tricks with one's own."""

from __future__ import annotations

from tests.escapes.attempt import attempt

READ = "open({}, 'rb').read(16)"
_LOCK = """
file = open('/usr/bin/env', 'rb')
try: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError: pass
else: hidden()
"""
_WATCH = """
watch = check(libc.inotify_init1(os.O_NONBLOCK))
check(libc.inotify_add_watch(watch, b'/usr/bin/env', 0x20))
import select
select.select([watch], [], [], 3)[0] or hidden()
"""
_MADE = """
import uuid
path = facts['bind'] + '/' + uuid.uuid4().hex
open(path, 'x').close()
"""
_DENIED = "EACCES"
_SEALED = "EACCES|EROFS"
_ABSENT = "EACCES|ENOENT"
_PERMITTED_BY_HOST = {"basic": "open", "standard": "ENOENT"}

FILES = (
    # -- the host's
    attempt("read /etc/shadow", READ.format("'/etc/shadow'"), basic=_DENIED, standard=_ABSENT),
    attempt("change /etc/passwd", "open('/etc/passwd', 'ab')", "EACCES|EROFS"),
    attempt("write into /usr/bin", "os.open('/usr/bin', os.O_TMPFILE | os.O_RDWR)", "EACCES|EROFS"),
    attempt("write into /etc", "os.open('/etc', os.O_TMPFILE | os.O_RDWR)", "EACCES|EROFS"),
    attempt("write into /", "os.mkdir('/x-sandboxd-test'); os.rmdir('/x-sandboxd-test')",
            "EACCES|EROFS"),
    attempt("list /root", "os.listdir('/root')", basic=_DENIED, standard=_ABSENT),
    attempt("read what the host's users may read", READ.format("facts['world_readable']"),
            **_PERMITTED_BY_HOST),
    attempt("which machine it is", READ.format("'/etc/machine-id'"), **_PERMITTED_BY_HOST,
            needs="has_machine_id"),
    attempt("who has an account", "open('/etc/passwd-').read(1) or hidden()",
            **_PERMITTED_BY_HOST, needs="has_old_passwd"),
    attempt("change a processor's state",
            "os.open('/sys/devices/system/cpu/cpu1/online', os.O_WRONLY)",
            "EACCES|EROFS|ENOENT|EPERM", needs="has_hotplug"),
    attempt("read the host's /tmp", READ.format("facts['host_tmp']"), "ENOENT"),
    attempt("read the host's /dev/shm", READ.format("facts['host_shm']"), "ENOENT"),
    attempt("list the host's /var/lib", "facts['state_name'] in os.listdir('/var/lib') or hidden()",
            basic="open", standard="ENOENT|hidden"),
    attempt("leave a file in a directory that the host opened to all",
            "path = facts['scratch'] + '/left'\nopen(path, 'x').close(); os.unlink(path)",
            basic="EROFS", standard="ENOENT"),
    attempt("leave a file in /run/lock",
            "path = '/run/lock/sandboxd-test'\nopen(path, 'x').close(); os.unlink(path)",
            basic="EROFS", standard="ENOENT", needs="has_run_lock"),
    attempt("see the host's POSIX queues",
            "os.path.exists('/dev/mqueue/' + facts['queue']) or hidden()", "hidden",
            needs="has_mqueue"),
    attempt("the cgroups of other sandboxes", "os.listdir('/sys/fs/cgroup') or hidden()",
            basic="hidden", standard="ENOENT|hidden", needs="has_cgroups"),
    # -- the daemon's and other sandboxes'
    attempt("list another sandbox's home", "os.listdir(facts['victim_home'])",
            basic=_DENIED, standard=_ABSENT),
    attempt("read another sandbox's file", READ.format("facts['victim_home'] + '/secret'"),
            basic=_DENIED, standard=_ABSENT),
    attempt("write another sandbox's file", "open(facts['victim_home'] + '/secret', 'ab')",
            basic=_DENIED, standard=_ABSENT),
    attempt("read another sandbox's output", "os.listdir(facts['victim_records'])",
            basic=_DENIED, standard=_ABSENT),
    attempt("read another sandbox's /tmp", READ.format("facts['victim_tmp']"), "ENOENT"),
    attempt("read another sandbox's /dev/shm", READ.format("facts['victim_shm']"), "ENOENT"),
    attempt("another sandbox's file lock", _LOCK, basic="open", standard="hidden"),
    attempt("watch what others run", _WATCH, basic="open", standard="hidden"),
    attempt("list the sandboxes", "os.listdir(facts['state'] + '/sandboxes')",
            basic=_DENIED, standard=_ABSENT),
    attempt("a symlink to another's file",
            "os.path.lexists('l') and os.unlink('l')\n"
            "os.symlink(facts['victim_home'] + '/secret', 'l')\n" + READ.format("'l'"),
            basic=_DENIED, standard=_ABSENT),
    attempt("a hard link to another's file",
            "os.link(facts['victim_home'] + '/secret', facts['scratch'] + '/hard')\n"
            "os.unlink(facts['scratch'] + '/hard')",
            basic=_DENIED, standard=_ABSENT),
    attempt("a hard link to a file of root's",
            "os.link(facts['scratch'] + '/of-root', facts['scratch'] + '/hard')\n"
            "os.unlink(facts['scratch'] + '/hard')", basic="EPERM|EROFS", standard="ENOENT"),
    attempt("into /etc by way of /tmp", "os.symlink('/etc', '/tmp/../etc/x-sandboxd-test')\n"
            "os.unlink('/etc/x-sandboxd-test')", "EACCES|EROFS"),
    attempt("open up the directory around home",
            "up = facts['above_home'] or os.path.dirname(os.environ['HOME'])\n"
            "os.chmod(up, stat.S_IMODE(os.stat(up).st_mode))",
            "EPERM|EROFS"),
    # -- by way of a bind: of a user's directory, whose files are the sandbox's inside
    attempt("give a file of a bind to root", _MADE + "os.chown(path, 0, 0)",
            basic=_SEALED, standard="EPERM|EINVAL|EOVERFLOW"),
    attempt("give a file of a bind to root's group", _MADE + "os.chown(path, -1, 0)",
            basic=_SEALED, standard="EPERM|EINVAL|EOVERFLOW"),
    attempt("read a bind's file of another owner", READ.format("facts['bind'] + '/closed'"),
            "EACCES"),
    attempt("change a bind's file of another owner", "open(facts['bind'] + '/of-root', 'ab')",
            basic=_SEALED, standard="EACCES"),
    attempt("change a bind's file of another owner who lets all do so",
            "open(facts['bind'] + '/open', 'ab')", basic=_SEALED, standard="EACCES"),
    attempt("change the mode of a bind's file of another owner",
            "os.chmod(facts['bind'] + '/of-root', 0o644)", basic="EPERM|EROFS",
            standard="EPERM|EOVERFLOW"),
    attempt("put another file in the place of a bind's file of another owner",
            _MADE + "os.rename(path, facts['bind'] + '/of-root')",
            basic=_SEALED, standard="EPERM|EACCES|EOVERFLOW"),
    attempt("a device in a bind",
            _MADE + "os.mknod(path + 'd', 0o600 | stat.S_IFCHR, os.makedev(1, 3))",
            basic=_SEALED, standard="EPERM"),
    attempt("open a device of a bind", "os.open(facts['bind'] + '/device', os.O_RDONLY)",
            "EACCES"),
    attempt("run a bind's set-user-id program of root's",
            "int(output(facts['bind'] + '/suid-id', '-u')) == 0 or hidden()", "hidden"),
    *(
        attempt(f"a set-id file of a bind's owner by {how}", _MADE + code, basic=_SEALED,
                standard="EPERM|ENOSYS", rare=how == "fchmodat2")
        for how, code in (
            ("chmod", "os.chmod(path, 0o4755)"),
            ("fchmod", "os.fchmod(os.open(path, os.O_RDWR), 0o2755)"),
            ("fchmodat2", "call(452, -100, path.encode(), 0o4755, 0)"),
            ("open", "os.open(path + 'o', os.O_CREAT | os.O_RDWR, 0o4755)"),
            ("a file without a name", "os.open(facts['bind'], os.O_TMPFILE | os.O_RDWR, 0o2755)"),
            ("openat2", "call(437, -100, (path + '2').encode(), struct.pack('<3Q', 66, 0o4755, 0),"
                        " 24)"),
            ("mknod", "os.mknod(path + 'm', stat.S_IFREG | 0o4755)"),
        )
    ),
    attempt("a file capability in a bind",
            _MADE + "right = struct.pack('<5I', 0x02000001, 1 << 13, 0, 0, 0)\n"
            "os.setxattr(path, 'security.capability', right)", basic=_SEALED, standard="EPERM"),
    # -- of one's own
    attempt("give a file to root", "open('o', 'w').close()\nos.chown('o', 0, 0)", "EPERM"),
    attempt("a file capability",
            "open('c', 'w').close()\n"
            "right = struct.pack('<5I', 0x02000001, 1 << 13, 0, 0, 0)\n"
            "os.setxattr('c', 'security.capability', right)",
            "EPERM"),
    attempt("a trusted attribute", "open('t', 'w').close()\nos.setxattr('t', 'trusted.x', b'y')",
            "EPERM"),
    attempt("a block device",
            "os.mknod('b', 0o600 | stat.S_IFBLK, os.makedev(7, 0)); os.unlink('b')",
            "EPERM"),
    attempt("a character device",
            "os.mknod('n', 0o600 | stat.S_IFCHR, os.makedev(1, 3)); os.unlink('n')", "EPERM"),
    attempt("another project id (FS_IOC_FSSETXATTR)",
            "fd = os.open('.', os.O_RDONLY)\nword = bytearray(28)\n"
            "fcntl.ioctl(fd, 0x801C581F, word)\nfcntl.ioctl(fd, 0x401C5820, word)", "EPERM"),
    attempt("no project id for new files (FS_IOC_SETFLAGS)",
            "fd = os.open('.', os.O_RDONLY)\nword = bytearray(8)\n"
            "fcntl.ioctl(fd, 0x80086601, word)\nfcntl.ioctl(fd, 0x40086602, word)", "EPERM"),
    attempt("another project id (file_setattr)", "call(469, -1, None, None, 0, 0)", "EPERM",
            outside="ENOSYS|EINVAL|EFAULT|EBADF"),
    # -- devices and the kernel's files
    attempt("the kernel's log device", "os.open('/dev/kmsg', os.O_RDONLY | os.O_NONBLOCK)",
            basic="EACCES|EPERM", standard="EACCES|EPERM|ENOENT", needs="has_kmsg"),
    attempt("the disk itself", "os.open(facts['disk'], os.O_RDONLY)",
            basic="EACCES|EPERM", standard="EACCES|EPERM|ENOENT", needs="disk"),
    attempt("a file system in user space", "os.open('/dev/fuse', os.O_RDWR)",
            basic="open|EACCES|EPERM", standard="EACCES|EPERM|ENOENT", needs="has_fuse"),
    attempt("all of memory", "os.read(os.open('/proc/kcore', os.O_RDONLY), 16) or hidden()",
            "EACCES|EPERM|ENOENT|hidden", needs="has_kcore"),
    attempt("where the kernel's symbols are",
            "lines = open('/proc/kallsyms').read(4096).splitlines()\n"
            "any(int(line.split()[0], 16) for line in lines) or hidden()",
            "hidden|EACCES|EPERM|ENOENT", needs="has_kallsyms"),
    attempt("a kernel setting", "os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY)",
            "EACCES|EROFS|ENOENT|EPERM"),
    attempt("a network setting", "os.open('/proc/sys/net/ipv4/ip_forward', os.O_WRONLY)",
            "EACCES|EROFS|ENOENT|EPERM"),
    attempt("the magic key",
            "mode = os.fstat(os.open('/proc/sysrq-trigger', os.O_WRONLY)).st_mode\n"
            "stat.S_ISCHR(mode) and hidden()",
            "EACCES|EROFS|ENOENT|EPERM|hidden", needs="has_sysrq"),
    attempt("a file of /sys", "os.open(facts['sys_file'], os.O_WRONLY)",
            "EACCES|EROFS|ENOENT|EPERM", needs="sys_file"),
    attempt("leave the cgroup", "open(facts['cgroup_procs'], 'w').write('0')",
            "EACCES|EROFS|ENOENT|EPERM", needs="cgroup_procs"),
    attempt("a cgroup of one's own",
            "os.mkdir(facts['cgroup'] + '/x'); os.rmdir(facts['cgroup'] + '/x')",
            "EACCES|EROFS|ENOENT|EPERM", needs="cgroup_procs"),
    attempt("change one's own memory limit",
            "text = open(facts['memory_max']).read()\nopen(facts['memory_max'], 'w').write(text)",
            "EACCES|EROFS|ENOENT|EPERM", needs="memory_max"),
)  # fmt: skip
