# SPDX-License-Identifier: Apache-2.0
"""Requests that one uid keeps under way until no more are taken: UID SOCKET COUNT < requests.

Each line of standard input is the head of a request without its end, `|` for a line's end. Each is
sent on connections of its own until one is refused, or so many are there; then their number is
printed. The end of standard input ends them.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.harness import ROOT, Daemon


@contextmanager
def under_way(daemon: Daemon, uid: int, heads: list[str], count: int) -> Iterator[int]:
    """How many of these requests a caller gets to have at once, and keeps."""
    command = [sys.executable, "-m", "tests.contract.greedy", str(uid), daemon.socket, str(count)]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("".join(f"{head}\n" for head in heads) + "\n")
        process.stdin.flush()
        yield int(process.stdout.readline())
        process.stdin.close()


def _begin(path: str, head: str) -> socket.socket | None:
    """A connection whose request goes on; None where it was refused."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(30)
    connection.connect(path)
    request = head.replace("|", "\r\n")
    connection.sendall(f"{request}\r\nHost: a\r\n\r\n".encode())
    answer = connection.recv(1 << 16)
    if answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.1 100 ")):
        return connection
    assert answer.startswith(b"HTTP/1.1 429 "), answer
    connection.close()
    return None


def _main(uid: int, path: str, count: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    heads = list(iter(sys.stdin.readline, "\n"))
    held: list[socket.socket] = []
    for head in heads:
        while len(held) < count:
            begun = _begin(path, head.rstrip("\n"))
            if begun is None:
                break
            held.append(begun)
    sys.stdout.write(f"{len(held)}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
