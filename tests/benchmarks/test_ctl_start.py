# SPDX-License-Identifier: Apache-2.0
"""What a short command of sandboxctl costs, as a multiple of the interpreter's own start.

`pytest tests/benchmarks -s` prints one JSON object for each case.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures import daemon_fixture
from tests.harness import ROOT, Daemon

ROUNDS = 20
BARE = ["-c", "pass"]
# What no program of this kind does without.
LEAST = ["-c", "import argparse, json, socket"]
START = "import sys; from sandboxd.ctl.main import main; sys.exit(main(sys.argv[1:]))"
BOUND = 4.5
daemon = daemon_fixture(SANDBOX_CGROUP_MODE="off")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["ls"], ["ps"], ["run", "--help"]])
def test_cost_of_a_start(daemon: Daemon, tmp_path: Path, argv: list[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SANDBOXD_SOCKET": daemon.socket}
    # As installed: compiled already.
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    cases = {"bare": BARE, "least": LEAST, "sandboxctl": ["-P", "-c", START, *argv]}
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(ROUNDS):
        for name, arguments in cases.items():
            best[name] = min(best[name], cpu_seconds(arguments, environment))
    ratio = best["sandboxctl"] / best["bare"]
    print(json.dumps({"argv": argv, "ratio": round(ratio, 2),
                      "ratio_of_argparse_json_socket": round(best["least"] / best["bare"], 2),
                      "milliseconds": round(1000 * best["sandboxctl"], 1)}))  # fmt: skip
    assert ratio <= BOUND


def cpu_seconds(arguments: list[str], environment: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
