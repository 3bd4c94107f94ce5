# SPDX-License-Identifier: Apache-2.0
"""Sockets: the host's services, its network, and families that lead elsewhere."""

from __future__ import annotations

from tests.escapes.attempt import attempt

_STREAM, _DATAGRAM = "socket.SOCK_STREAM", "socket.SOCK_DGRAM"
_NO_SUCH_PLACE = "ENOENT|EACCES"
_LO_UP = """
s = socket.socket()
word = bytearray(struct.pack('16sH22x', b'lo', 0))
fcntl.ioctl(s, 0x8913, word)
fcntl.ioctl(s, 0x8914, word)
"""
_BUS_HELLO = """
s = connect(socket.SOCK_STREAM, '/run/dbus/system_bus_socket')
s.sendall(b'\\0AUTH EXTERNAL ' + str(os.getuid()).encode().hex().encode() + b'\\r\\n')
s.recv(100).startswith(b'OK') or (_ for _ in ()).throw(Refused())
"""
_REFUSED_OR_ABSENT = "refused|ENOENT|EACCES"

NETWORK = (
    # -- the host's services
    attempt("the daemon's API", f"connect({_STREAM}, facts['api'])", _NO_SUCH_PLACE),
    attempt("the spawner", "connect(socket.SOCK_SEQPACKET, facts['spawner'])", _NO_SUCH_PLACE),
    attempt("another sandbox's shim", "connect(socket.SOCK_SEQPACKET, facts['control'])",
            _NO_SUCH_PLACE),
    attempt("a socket that the host opened to all", f"connect({_STREAM}, facts['host_socket'])",
            basic="open", standard="ENOENT"),
    attempt("D-Bus", _BUS_HELLO, _NO_SUCH_PLACE, needs="has_bus"),
    attempt("systemd's private socket", f"connect({_STREAM}, '/run/systemd/private')",
            basic="EACCES", standard=_NO_SUCH_PLACE, needs="has_systemd"),
    attempt("systemd's notify socket", f"connect({_DATAGRAM}, '/run/systemd/notify')",
            basic="open|EACCES", standard=_NO_SUCH_PLACE, needs="has_systemd"),
    attempt("the journal", f"connect({_DATAGRAM}, '/run/systemd/journal/socket')",
            basic="open", standard=_NO_SUCH_PLACE, needs="has_systemd"),
    attempt("ask systemd for a unit",
            "output('systemd-run', '--no-ask-password', '--quiet', '--wait', '--', 'true')",
            _REFUSED_OR_ABSENT, needs="has_systemd"),
    attempt("ask systemd for a scope",
            "output('systemd-run', '--no-ask-password', '--quiet', '--scope', '--', 'true')",
            _REFUSED_OR_ABSENT, needs="has_systemd"),
    attempt("ask systemd to change a unit",
            "output('busctl', '--system', 'call', 'org.freedesktop.systemd1',"
            " '/org/freedesktop/systemd1', 'org.freedesktop.systemd1.Manager', 'ResetFailedUnit',"
            " 's', 'dbus.service')", _REFUSED_OR_ABSENT, needs="has_systemd"),
    # -- its network
    attempt("an abstract socket of the host's", f"connect({_STREAM}, '\\0' + facts['abstract'])",
            "ECONNREFUSED", on_host_network="open"),
    attempt("a local port of the host's",
            f"connect({_STREAM}, ('127.0.0.1', facts['port']), socket.AF_INET)",
            "ECONNREFUSED|ENETUNREACH", on_host_network="open"),
    attempt("a local port of the host's by IPv6",
            f"connect({_STREAM}, ('::1', facts['port6']), socket.AF_INET6)",
            "ECONNREFUSED|ENETUNREACH|EADDRNOTAVAIL", on_host_network="open", needs="port6"),
    attempt("a port below 1024",
            "s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
            "s.bind(('127.0.0.1', 999))", "EACCES"),
    attempt("change an interface", _LO_UP, "EPERM"),
    attempt("raw packets", "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)",
            "EPERM|EPROTONOSUPPORT"),
    attempt("raw packets by IPv6",
            "socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)",
            "EPERM|EPROTONOSUPPORT", needs="port6"),
    attempt("frames of an interface", "socket.socket(17, socket.SOCK_RAW, 0)", "EAFNOSUPPORT"),
    # -- families that lead elsewhere
    attempt("the hypervisor (vsock)", f"socket.socket(40, {_STREAM})", "EAFNOSUPPORT",
            rare=True),
    attempt("the kernel's cryptography", "socket.socket(38, socket.SOCK_SEQPACKET)",
            "EAFNOSUPPORT", rare=True),
    attempt("Bluetooth", "socket.socket(31, socket.SOCK_RAW, 1)", "EAFNOSUPPORT",
            rare=True),
    attempt("a pair of vsock", "socket.socketpair(40, socket.SOCK_STREAM)", "EAFNOSUPPORT",
            outside="EOPNOTSUPP|ENOTSUP", rare=True),
)  # fmt: skip
