# SPDX-License-Identifier: Apache-2.0
"""Output without measure: counted to the byte, or cut exactly, and never kept in memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.contract.probes import path_of, python, resident_bytes
from tests.harness import Daemon

MIB = 1 << 20


@pytest.mark.parametrize(
    ("argv", "size"),
    [
        pytest.param(python("import os; b = b'x' * 132_000_000\nwhile b: b = b[os.write(1, b):]"),
                     132_000_000, id="as large as they come"),
        pytest.param(python("import os\nfor _ in range(500_000): os.write(1, b'x')"),
                     500_000, id="byte by byte"),
        pytest.param(["head", "-c", "100000000", "/dev/zero"], 100_000_000, id="one line"),
    ],
)  # fmt: skip
def test_every_byte_is_counted(daemon: Daemon, create: Any, argv: list[str], size: int) -> None:
    sandbox = create(limits={"memory_bytes": "400M"})
    ran = daemon.execute(sandbox["id"], argv, max_output_bytes="200M")
    assert (ran["status"], ran["stdout_bytes"], ran["stdout_truncated"]) == ("EXITED", size, False)
    with daemon.stream(f"{path_of(ran)}/output") as answer:
        assert sum(map(len, iter(lambda: answer.read(MIB), b""))) == size


def test_the_last_words_of_many_at_once_are_whole(
    daemon: Daemon, sandbox: Any, soak_count: Callable[[int], int]
) -> None:
    def run(_: int) -> Any:
        return daemon.execute(sandbox["id"], ["sh", "-c", "printf 0123456789; exit 3"])

    with ThreadPoolExecutor(8) as pool:
        for ran in pool.map(run, range(soak_count(1000))):
            assert (ran["stdout"], ran["exit_code"]) == ("0123456789", 3)


def test_endless_output_is_cut_and_takes_no_memory(daemon: Daemon, sandbox: Any) -> None:
    # Buffers of the first answer stay with the allocator.
    daemon.execute(sandbox["id"], ["yes"], max_output_bytes="1M")
    before = resident_bytes(daemon)
    for _ in range(5):
        ran = daemon.execute(sandbox["id"], ["yes"], max_output_bytes="1M")
        assert (ran["status"], ran["stdout_bytes"]) == ("OUTPUT_LIMIT", MIB)
        # It is known afterwards, and so is what it printed.
        assert daemon.ok("GET", path_of(ran))["stdout"] == "y\n" * (MIB // 2)
    assert resident_bytes(daemon) - before < 16 * MIB
