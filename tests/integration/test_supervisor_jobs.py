# SPDX-License-Identifier: Apache-2.0
"""A shell on a terminal does not take what holds processor time for somebody's job control."""

from __future__ import annotations

import pytest

from tests.conftest import requires_program
from tests.contract.probes import output, path_of, printed, start
from tests.integration.supervisor import supervised

BURN = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done"


@pytest.mark.parametrize("own", [False, True], ids=["sandbox", "execution"])
def test_a_slowed_job_of_an_interactive_shell_is_not_stopped(own: bool) -> None:
    requires_program("bash")
    slow = {"cpus": 0.1}
    with supervised() as daemon:
        made = daemon.create(limits={"memory_bytes": "128M", **({} if own else slow)})
        running = start(
            daemon, made, ["bash", "--norc", "-i"], tty={"rows": 24, "cols": 80},
            limits=slow if own else {},
        )  # fmt: skip
        for number in range(3):
            # In pieces, so that what the terminal echoes is not what is waited for.
            line = f'bash -c \'{BURN}\' | cat; echo "en""ded {number}: ${{PIPESTATUS[*]}}."\n'
            daemon.ok("POST", f"{path_of(running)}/stdin", line.encode())
            printed(daemon, running, f"ended {number}: ".encode(), 60)
        seen = output(daemon, running)
        assert b"Stopped" not in seen, seen
        assert seen.count(b": 0 0.") == 3, seen
        daemon.ok("POST", f"{path_of(running)}/kill")
        assert daemon.wait(running)["usage"]["cpu_throttled_seconds"] > 0
