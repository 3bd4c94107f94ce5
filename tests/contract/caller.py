# SPDX-License-Identifier: Apache-2.0
"""Requests as another uid: a process of its own drops root, since the kernel says who calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.harness import ROOT, Answer, Daemon, request

# In no passwd file, and far from the uids that sandboxes get.
FIRST_UID, SECOND_UID = 64123, 64124


class CallerOf:
    """Sends requests to a daemon through a process of another uid."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def request(
        self, method: str, target: str, body: Any = None, *, key: str | None = None
    ) -> Answer:
        """One request. key: an Idempotency-Key."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([method, target, body, key]).encode() + b"\n")
        self._process.stdin.flush()
        status, headers, text = json.loads(self._process.stdout.readline())
        return Answer(status, headers, text.encode())

    def ok(self, method: str, target: str, body: Any = None) -> Any:
        """The decoded answer of a request that must succeed."""
        answer = self.request(method, target, body)
        assert answer.status < 300, answer.body
        return answer.json


@contextmanager
def caller(daemon: Daemon, uid: int) -> Iterator[CallerOf]:
    """A caller of `daemon` with this uid and no other rights."""
    command = [sys.executable, "-m", "tests.contract.caller", str(uid), daemon.socket]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        yield CallerOf(process)


def _main(uid: int, path: str) -> None:
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    for line in sys.stdin:
        method, target, body, key = json.loads(line)
        headers = {} if key is None else {"Idempotency_Key": key}
        answer = request(path, method, target, body, **headers)
        sys.stdout.write(
            json.dumps([answer.status, dict(answer.headers), answer.body.decode()]) + "\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2])
