# SPDX-License-Identifier: Apache-2.0
"""A spawner whose code forgets one step of giving things up: its shims start no command."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.contract.probes import find
from tests.harness import ROOT, Daemon

pytestmark = pytest.mark.usefixtures("requires_root")

# What is taken out of isolation/enter.py, and what the shim must say. Without no_new_privs the
# kernel takes no filter, so that its turn never comes.
FORGOTTEN = {
    "seccomp.load(seccomp.Filter(command.filter))": "not filtered",
    "os.setresuid(uid, uid, uid)": "Uid",
    "os.setresgid(gid, gid, gid)": "Gid",
    "linux.drop_capability_bounding_set()": "CapBnd",
    "os.setgroups([])": "groups",
}


@pytest.mark.parametrize(("step", "words"), FORGOTTEN.items())
def test_a_command_that_kept_something_is_killed(step: str, words: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "sandboxd", tmp_path / "sandboxd")
    module = tmp_path / "sandboxd" / "isolation" / "enter.py"
    text = module.read_text()
    assert text.count(step) == 1
    # Groups that the host's root may not have: some must be there to be kept.
    instead = "os.setgroups([4])" if "setgroups" in step else "pass"
    module.write_text(text.replace(step, instead))
    # Python looks for `-m` in the working directory first.
    prefix = ["env", "--chdir", str(tmp_path)]
    made = Daemon(SANDBOX_CGROUP_MODE="off", PYTHONPATH=str(tmp_path))
    with made.running(prefix=prefix) as daemon:
        sandbox = daemon.create(limits={"memory_bytes": "64M"})
        target = f"/v1/sandboxes/{sandbox['id']}/executions"
        answer = daemon.request("POST", target, {"argv": ["sleep", "100"], "cwd": "/"})
        assert answer.status >= 400, answer.body
        assert "verify" in answer.body.decode()
        assert words in answer.body.decode()
        uid = (daemon.state / "sandboxes" / sandbox["id"] / "home").stat().st_uid
        assert find("sleep 100", uid) == []
