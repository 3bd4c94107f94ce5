# SPDX-License-Identifier: Apache-2.0
"""What a hostile caller does all the time, as a process of its own uid: NAME UID SOCKET."""

from __future__ import annotations

import itertools
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from http.client import HTTPException
from typing import Any

from tests.harness import request

MIB = 1 << 20
JSON = "Content-Type: application/json\r\n"


class Attack:
    """Requests of one hostile caller."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._held: list[socket.socket] = []

    def ask(self, method: str, target: str, body: Any = None) -> Any:
        return request(self._path, method, target, body)

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(5)
        connection.connect(self._path)
        return connection

    def hold(self, target: str, count: int) -> None:
        """So many connections that ask and never read; those that were ended are made anew."""
        while True:
            self._held = [one for one in self._held if is_open(one)]
            while len(self._held) < count:
                connection = self.connect()
                connection.sendall(f"GET {target} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                self._held.append(connection)
            say_ready()
            time.sleep(0.2)

    def headers(self) -> None:
        """Headers without end, one connection after the other."""
        lines = b"X-Header: xxx\r\n" * 1000
        say_ready()
        while True:
            with suppress(OSError), self.connect() as connection:
                connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: a\r\n")
                for _ in range(1000):
                    connection.sendall(lines)

    def answers(self) -> None:
        """Two MiB of zeros, six times that in JSON, which nobody reads."""
        print_zeros = {"command": "head -c 1M /dev/zero; head -c 1M /dev/zero >&2"}
        ran = self.ask("POST", "/v1/run", print_zeros).json
        self.hold(f"/v1/sandboxes/{ran['sandbox_id']}/executions/{ran['id']}", 200)

    def lists(self) -> None:
        """Lists of as large environments as may be had."""
        body = {"env": {f"A{n}": "a" * 100_000 for n in range(19)},
                "limits": {"memory_bytes": "8M"}}  # fmt: skip
        while self.ask("POST", "/v1/sandboxes", body).status == 201:
            pass
        self.hold("/v1/sandboxes?limit=1000", 50)

    def bodies(self) -> None:
        """Bodies of 8 MiB that lack their end."""
        head = f"POST /v1/run HTTP/1.1\r\nHost: a\r\n{JSON}Content-Length: {8 * MIB}\r\n\r\n"
        while True:
            self._held = [one for one in self._held if is_open(one)]
            while len(self._held) < 120:
                connection = self.connect()
                connection.sendall(head.encode())
                self._held.append(connection)
            for connection in self._held:
                connection.setblocking(False)
                with suppress(OSError):
                    connection.sendall(b" " * (64 << 10))
            say_ready()
            time.sleep(0.05)

    def payloads(self) -> None:
        """Bodies that take long to read, complete, one after the other."""
        body = json.dumps({"argv": ["a"], "env": {f"A{n}": "\u00e9" * 200 for n in range(4000)}})
        head = f"POST /v1/sandboxes/nosuch/executions HTTP/1.1\r\nHost: a\r\n{JSON}"
        data = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
        say_ready()
        while True:
            with self.connect() as one, self.connect() as other, suppress(OSError):
                while True:
                    for each in (one, other):
                        each.sendall(data)
                    for each in (one, other):
                        each.recv(4096)

    def records(self) -> None:
        """Runs with as many arguments as may be passed."""
        body = json.loads(json.dumps({"argv": ["/bin/true", *(["a" * 100_000] * 18)]}))
        for _ in range(40):
            self.ask("POST", "/v1/run", body)
        say_ready()
        for _ in itertools.count():
            self.ask("POST", "/v1/run", body)

    def sandboxes(self) -> None:
        """Sandboxes made and released, as many at a time as there are connections for."""

        def make(_: int) -> None:
            while True:
                made = self.ask("POST", "/v1/sandboxes", {"limits": {"memory_bytes": "4M"}})
                if made.status == 201:
                    self.ask("DELETE", f"/v1/sandboxes/{made.json['id']}")

        self.together(200, make)

    def output(self) -> None:
        """Zeros without end, of eight programs at a time; limits are to hold their CPU time."""
        limits = {"cpus": 0.5, "max_output_bytes": 4 << 30}
        box = self.ask("POST", "/v1/sandboxes", {"limits": {"cpus": limits["cpus"]}}).json
        target = f"/v1/sandboxes/{box['id']}/executions"
        body = {"command": "cat /dev/zero", "wait": False, "limits": limits}
        assert self.ask("POST", target, body).status == 201
        while True:
            listed = self.ask("GET", f"{target}?status=PENDING,RUNNING&limit=100").json
            for _ in range(8 - len(listed["executions"])):
                self.ask("POST", target, body)
            say_ready()
            time.sleep(0.05)

    # -- files

    def deep_paths(self) -> None:
        """Files in directories that are to be made, as deep as may be and far deeper."""
        target = f"/v1/sandboxes/{self.ask('POST', '/v1/sandboxes', {}).json['id']}/files"

        def write(worker: int) -> None:
            while True:
                for depth in (2000, 250):
                    path = f"w{worker}/{'a/' * depth}f?parents=true"
                    self.ask("PUT", f"{target}/{path}", b"x")
                self.ask("DELETE", f"{target}/w{worker}")

        self.together(16, write)

    def deep_archives(self) -> None:
        """Archives of directories that a program made far deeper than any path is long."""
        body = {"argv": ["python3", "-c", DIG], "timeout_seconds": 60}
        sandbox = self.ask("POST", "/v1/sandboxes", {}).json["id"]
        ran = self.ask("POST", f"/v1/sandboxes/{sandbox}/executions", body).json
        assert ran["exit_code"] == 0, ran

        def pack(worker: int) -> None:
            while True:
                # An archive that goes too deep is broken off.
                with suppress(HTTPException):
                    self.ask("GET", f"/v1/sandboxes/{sandbox}/archive/w{worker % 4}")

        self.together(16, pack)

    def removals(self) -> None:
        """Releases of sandboxes with many files, all at once."""
        filled = threading.Barrier(FILLERS, action=say_ready)

        def fill(_: int) -> None:
            while True:
                sandbox = self.ask("POST", "/v1/sandboxes", {"limits": {"cpus": 0.2}}).json["id"]
                body = {"argv": ["python3", "-c", FILL], "timeout_seconds": 120}
                ran = self.ask("POST", f"/v1/sandboxes/{sandbox}/executions", body).json
                assert ran["exit_code"] == 0, ran
                filled.wait()
                self.ask("DELETE", f"/v1/sandboxes/{sandbox}")

        self.together(FILLERS, fill, ready=False)

    def together(self, count: int, work: Callable[[int], None], *, ready: bool = True) -> None:
        """Do the same in so many threads, each with a number, for ever."""
        with ThreadPoolExecutor(count) as pool:
            futures = [pool.submit(work, number) for number in range(count)]
            if ready:
                say_ready()
            # None ends but by an error.
            for ended in as_completed(futures):
                ended.result()


FILLERS = 6
DIG = """
import os
for worker in range(4):
    os.mkdir(f"w{worker}")
    os.chdir(f"w{worker}")
    for _ in range(2000):
        os.mkdir("a")
        os.chdir("a")
    os.chdir(os.environ["HOME"])
"""
FILL = """
for number in range(30_000):
    open(f"f{number}", "w").close()
"""
_SAID: list[bool] = []


def say_ready() -> None:
    if not _SAID:
        _SAID.append(True)
        print("ready", flush=True)


def is_open(connection: socket.socket) -> bool:
    """Whether the daemon has not closed it; what it sent stays unread."""
    try:
        connection.setblocking(False)
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False


def main() -> None:
    name, uid, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    run: Callable[[], None] = getattr(Attack(path), name)
    run()


if __name__ == "__main__":
    main()
