# SPDX-License-Identifier: Apache-2.0
"""Processes and privileges: others', and more of one's own."""

from __future__ import annotations

from tests.escapes.attempt import attempt

_CAPSET = """
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
words = (ctypes.c_uint32 * 6)(1 << 13, 1 << 13, 0, 0, 0, 0)
check(libc.capset(header, words))
"""
_SET_USER_PROGRAM = """
become_nobody()
int(output('./suid-id', '-u')) == 0 or hidden()
"""
_CAPABLE_PROGRAM = """
become_nobody()
status = output('./capable-cat', '/proc/self/status')
line = next(x for x in status.splitlines() if x.startswith('CapEff'))
int(line.split()[1], 16) or hidden()
"""
_SEE = """
for path in glob.glob('/proc/[0-9]*/cmdline'):
    try: text = open(path, 'rb').read()
    except OSError: continue
    if facts['marker_reversed'][::-1].encode() in text: break
else: raise Hidden
"""
_DESCRIPTORS = """
left = [fd for fd in os.listdir('/proc/self/fd') if int(fd) > 2]
len(left) > 1 or hidden()
"""
_CREDENTIALS = """
a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
b.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
who = struct.pack('3i', facts['trusted_pid'], 0, 0)
a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, who)])
"""
_READ_MEMORY = """
class Part(ctypes.Structure): _fields_ = [('base', ctypes.c_void_p), ('size', ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(8)
mine = Part(ctypes.addressof(buffer), 8)
first = open(f"/proc/{facts['trusted_pid']}/maps").readline().partition('-')[0] \
    if os.getuid() == 0 else '400000'
theirs = Part(int(first, 16), 8)
pid = facts['trusted_pid']
check(libc.process_vm_readv(pid, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0))
"""
_NO_RIGHTS = "EPERM|EACCES"
_NOT_SHOWN = "ENOENT|EPERM|EACCES"

PROCESSES = (
    # -- others'
    attempt("signal another sandbox's process", "os.kill(facts['victim_pid'], 0)", "ESRCH"),
    attempt("signal everybody", "os.kill(-1, 0)", "ESRCH"),
    attempt("signal the shim", "os.kill(facts['trusted_pid'], 0)", "EPERM"),
    attempt("see another sandbox's process", _SEE, "hidden"),
    attempt("read another's environment", "open(f\"/proc/{facts['victim_pid']}/environ\")",
            "ENOENT|EACCES"),
    attempt("a pidfd of another's process", "os.pidfd_open(facts['victim_pid'])", "ESRCH"),
    attempt("renice another sandbox",
            "os.setpriority(os.PRIO_USER, facts['victim_uid'], 1)", "ESRCH"),
    attempt("trace the shim", "check(libc.ptrace(0x4206, facts['trusted_pid'], None, None))",
            "EPERM"),
    attempt("read the shim's memory", _READ_MEMORY, "EPERM"),
    attempt("the shim's memory as a file", "open(f\"/proc/{facts['trusted_pid']}/mem\", 'rb')",
            _NOT_SHOWN),
    attempt("the shim's environment", "open(f\"/proc/{facts['trusted_pid']}/environ\")",
            _NOT_SHOWN),
    attempt("the shim's descriptors", "os.listdir(f\"/proc/{facts['trusted_pid']}/fd\")",
            _NOT_SHOWN),
    attempt("the shim's root directory", "os.listdir(f\"/proc/{facts['trusted_pid']}/root\")",
            _NOT_SHOWN),
    attempt("the shim's working directory", "os.listdir(f\"/proc/{facts['trusted_pid']}/cwd\")",
            _NOT_SHOWN),
    attempt("the shim's namespaces", "os.open(f\"/proc/{facts['trusted_pid']}/ns/mnt\", 0)",
            _NOT_SHOWN),
    attempt("the shim's command line", "open(f\"/proc/{facts['trusted_pid']}/cmdline\")",
            _NOT_SHOWN),
    attempt("the shim's mounts, which are the host's",
            "open(f\"/proc/{facts['trusted_pid']}/mountinfo\")", _NOT_SHOWN),
    attempt("the shim's network, which is the host's",
            "open(f\"/proc/{facts['trusted_pid']}/net/unix\")", _NOT_SHOWN),
    attempt("the same by the shim's thread",
            "os.listdir('/proc/{0}/task/{0}/net'.format(facts['trusted_pid']))", _NOT_SHOWN),
    attempt("take a descriptor of the shim's",
            "call(438, os.pidfd_open(facts['trusted_pid']), 0, 0)", "EPERM"),
    attempt("compare with the shim's files",
            "call((312, 272), os.getpid(), facts['trusted_pid'], 2, 0, 0)", "EPERM"),
    attempt("move the shim's pages", "call((256, 238), facts['trusted_pid'], 0, None, None)",
            "EPERM", outside="open|EINVAL|ENOSYS"),
    attempt("descriptors left open", _DESCRIPTORS, "hidden"),
    attempt("another's credentials", _CREDENTIALS, "EPERM"),
    # -- of one's own
    attempt("become root", "os.setuid(0)", "EPERM"),
    attempt("become another sandbox", "os.setresuid(*[facts['victim_uid']] * 3)", "EPERM"),
    attempt("root's group", "os.setgid(0)", "EPERM"),
    attempt("more groups", "os.setgroups([0])", "EPERM"),
    attempt("take a capability", _CAPSET, "EPERM"),
    attempt("keep capabilities over setuid (securebits)", "check(libc.prctl(28, 0, 0, 0, 0))",
            "EPERM"),
    attempt("a program that is set-user-id root", _SET_USER_PROGRAM, "hidden"),
    attempt("a program with a file capability", _CAPABLE_PROGRAM, "EPERM|hidden"),
    attempt("sudo", "output('sudo', '-n', 'true')", "refused", needs="has_sudo"),
    attempt("mount as a user", "output('mount', '-t', 'tmpfs', 'none', '/mnt')", "refused"),
    attempt("be spared by the OOM killer",
            "os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1')",
            _NO_RIGHTS, needs="has_resource"),
    attempt("more open files than allowed",
            "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
            "check(libc.prlimit(0, 7, (ctypes.c_uint64 * 2)(hard + 1, hard + 1), None))",
            "EPERM", control_needs="has_resource"),
    attempt("a core dump",
            "check(libc.prlimit(0, 4, (ctypes.c_uint64 * 2)(4096, 4096), None))\n"
            "if resource.getrlimit(resource.RLIMIT_CORE)[0] != 4096: hidden()",
            "EPERM|hidden", control_needs="has_core"),
    # core(5): with 0 the host's root runs the program that core files are piped to, with 1 nobody.
    *(attempt(f"the host's program for core files ({name})",
              f"{code}\nif resource.getrlimit(resource.RLIMIT_CORE) == (1, 1): hidden()",
              "hidden")
      for name, code in (
          ("prlimit", "check(libc.prlimit(0, 4, (ctypes.c_uint64 * 2)(0, 0), None))"),
          ("setrlimit", "call((160, 164), 4, (ctypes.c_uint64 * 2)(0, 0))"),
          ("of a child",
           "pid = os.fork()\n"
           "if pid == 0: os.kill(os.getpid(), signal.SIGSTOP); os._exit(0)\n"
           "os.waitpid(pid, os.WUNTRACED)\n"
           "check(libc.prlimit(pid, 4, (ctypes.c_uint64 * 2)(0, 0), None))\n"
           "there = resource.prlimit(pid, resource.RLIMIT_CORE)\n"
           "os.kill(pid, signal.SIGKILL)\n"
           "os.waitpid(pid, 0)\n"
           "if there != (0, 0): hidden()\n"
           "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))"),
      )),
    attempt("a higher priority", "os.nice(-1)", _NO_RIGHTS),
    attempt("a real-time priority",
            "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))", "EPERM"),
    # -- System V and POSIX objects
    attempt("the host's shared memory", "check(libc.shmget(facts['ipc_key'], 0, 0))", "ENOENT"),
    attempt("the host's semaphores", "check(libc.semget(facts['ipc_key'], 0, 0))", "ENOENT"),
    attempt("the host's message queues", "check(libc.msgget(facts['ipc_key'], 0))", "ENOENT"),
    attempt("the host's POSIX message queues",
            "call((240, 180), facts['queue'].encode(), 0, 0, None)", "ENOENT"),
)  # fmt: skip
