# SPDX-License-Identifier: Apache-2.0
"""What a command finds around it: the first level of isolation, which root's daemon never lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import Create
from tests.contract.probes import printed, python, start, uid_inside
from tests.harness import Daemon

# fd 3 is the directory that is being read.
SHOW_FDS = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd')))"
SHOW_FDS_OPEN = """
import fcntl
found = []
for fd in range(4096):
    try:
        fcntl.fcntl(fd, fcntl.F_GETFD)
        found.append(fd)
    except OSError:
        pass
print(found)
"""
needs_root = pytest.mark.usefixtures("requires_root")


def status(daemon: Daemon, sandbox: Any) -> dict[str, str]:
    text = daemon.execute(sandbox["id"], ["cat", "/proc/self/status"])["stdout"]
    return {key: value.strip() for key, _, value in (x.partition(":") for x in text.splitlines())}


def test_privileges_cannot_be_gained(daemon: Daemon, sandbox: Any) -> None:
    assert status(daemon, sandbox)["NoNewPrivs"] == "1"


@needs_root
def test_there_are_no_capabilities_and_no_groups(daemon: Daemon, sandbox: Any) -> None:
    found = status(daemon, sandbox)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(found[name], 16) == 0, name
    assert found["Groups"] == ""
    uids, gids = found["Uid"].split(), found["Gid"].split()
    assert len(set(uids)) == len(set(gids)) == 1
    assert "0" not in uids + gids


@needs_root
def test_every_sandbox_has_a_uid_of_its_own(daemon: Daemon, create: Create) -> None:
    made = [create() for _ in range(5)]
    uids = [uid_inside(daemon, one) for one in made]
    assert len(set(uids)) == 5
    assert [uid_inside(daemon, one) for one in made] == uids
    taken = {int(line.split(":")[2]) for line in Path("/etc/passwd").read_text().splitlines()}
    assert not taken & set(uids)


@needs_root
def test_its_uid_fits_into_archives_of_the_old_form(daemon: Daemon, sandbox: Any) -> None:
    script = (
        "echo x > f && tar --format=ustar -cf a.tar f && tar --numeric-owner -tvf a.tar && id -u"
    )
    ran = daemon.execute(sandbox["id"], script)
    assert ran["exit_code"] == 0, ran["stderr"]
    listed, uid = ran["stdout"].splitlines()
    assert listed.split()[1] == f"{uid}/{uid}"


def test_what_a_user_installs_is_found_after_what_the_system_has(
    daemon: Daemon, sandbox: Any
) -> None:
    script = """mkdir -p ~/.local/bin && cd ~/.local/bin && for name in mine true; do
        printf '#!/bin/sh\\necho "of $0"\\n' > $name && chmod +x $name; done"""
    assert daemon.execute(sandbox["id"], script)["exit_code"] == 0
    ran = daemon.execute(sandbox["id"], ["mine"])
    assert ran["stdout"].endswith("/.local/bin/mine\n")
    assert daemon.execute(sandbox["id"], ["true"])["stdout"] == ""


@needs_root
def test_its_uid_has_a_passwd_entry(daemon: Daemon, sandbox: Any) -> None:
    code = "import os, pwd; print(pwd.getpwuid(os.getuid()).pw_dir == os.environ['HOME'])"
    assert daemon.execute(sandbox["id"], python(code))["stdout"] == "True\n"


@pytest.mark.parametrize("stdin", [None, "x"])
def test_only_the_three_usual_files_are_open(
    daemon: Daemon, sandbox: Any, stdin: str | None
) -> None:
    ran = daemon.execute(sandbox["id"], python(SHOW_FDS), stdin=stdin)
    assert ran["stdout"] == "[0, 1, 2, 3]\n"
    ran = daemon.execute(sandbox["id"], python(SHOW_FDS_OPEN), stdin=stdin, merge_output=True)
    assert ran["stdout"] == "[0, 1, 2]\n"


def test_output_can_be_opened_by_name(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], "echo o > /dev/stdout; echo e > /dev/stderr", stdin="")
    assert (ran["stdout"], ran["stderr"]) == ("o\n", "e\n")


@needs_root
def test_pids_are_of_its_own_namespace(daemon: Daemon, create: Create) -> None:
    made, other = create(), create()
    running = start(daemon, other, "echo on; exec sleep 98765")
    printed(daemon, running, b"on")
    code = "import os; print(*[n for n in os.listdir('/proc') if n.isdigit()])"
    assert len(daemon.execute(made["id"], python(code))["stdout"].split()) <= 3
    ran = daemon.execute(made["id"], "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; kill -9 -1")
    assert "98765" not in ran["stdout"]
    target = f"/v1/sandboxes/{other['id']}/executions/{running['id']}"
    assert daemon.ok("GET", target)["status"] == "RUNNING"


def test_home_is_private_and_its_own(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], 'stat -c "%a %u %F" "$HOME"; id -u; touch "$HOME/x"')
    mode, uid = ran["stdout"].splitlines()
    assert mode == f"700 {uid} directory"
    assert ran["exit_code"] == 0


def test_who_it_is_is_in_the_environment(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], ["env"])
    found = dict(line.split("=", 1) for line in ran["stdout"].splitlines())
    assert found["USER"] == found["LOGNAME"] != ""
    assert found["HOME"].startswith("/")
    ran = daemon.execute(sandbox["id"], 'test -d "$TMPDIR" && echo x > "$TMPDIR/f" && ls "$TMPDIR"')
    assert ran["stdout"] == "f\n"


def test_home_lasts_as_long_as_the_sandbox(daemon: Daemon, create: Create) -> None:
    one, two = create(), create()
    daemon.execute(one["id"], "echo kept > file")
    assert daemon.execute(one["id"], ["cat", "file"])["stdout"] == "kept\n"
    assert daemon.execute(two["id"], ["cat", "file"])["exit_code"] == 1


@needs_root
def test_another_sandbox_s_home_cannot_be_read(daemon: Daemon, create: Create) -> None:
    mine, other = create(), create()
    daemon.execute(other["id"], "echo secret > s; chmod 0777 s; chmod 0777 .")
    home = daemon.state / "sandboxes" / other["id"] / "home"
    assert (home / "s").exists()
    for command in (f"cat {home}/s", f"ls {home}", f"ls {home}/..", f"echo x > {home}/new"):
        ran = daemon.execute(mine["id"], command)
        assert ran["exit_code"] != 0, command
        assert "secret" not in ran["stdout"]
    assert daemon.execute(other["id"], ["ls"])["stdout"] == "s\n"


@needs_root
def test_tmp_is_private_and_lasts(daemon: Daemon, create: Create) -> None:
    one, two = create(), create()
    for directory in ("/tmp", "/var/tmp", "/dev/shm"):
        path = f"{directory}/of-one"
        ran = daemon.execute(one["id"], f"echo x > {path}; ls -A {directory}")
        assert ran["stdout"].split() == ["of-one"], ran["stderr"]
        assert daemon.execute(two["id"], ["ls", "-A", directory])["stdout"] == ""
        assert not Path(path).exists()
    assert daemon.execute(one["id"], ["cat", "/tmp/of-one"])["stdout"] == "x\n"


@needs_root
def test_the_daemon_s_own_files_cannot_be_reached(daemon: Daemon, sandbox: Any) -> None:
    ran = daemon.execute(sandbox["id"], f"find {daemon.state} {daemon.runtime} -type f 2>/dev/null")
    home = daemon.execute(sandbox["id"], 'echo "$HOME"')["stdout"].strip()
    seen = [path for path in ran["stdout"].splitlines() if not path.startswith(home)]
    assert seen == []
    code = f"""
import os, stat
for top in {[str(daemon.state), str(daemon.runtime)]!r}:
    for base, _, names in os.walk(top):
        for name in names:
            path = os.path.join(base, name)
            if stat.S_ISSOCK(os.stat(path).st_mode) and path != {daemon.socket!r}:
                if os.access(path, os.W_OK): print(path)
"""
    assert daemon.execute(sandbox["id"], python(code))["stdout"] == ""


@needs_root
def test_the_host_s_files_cannot_be_changed(daemon: Daemon, sandbox: Any) -> None:
    for command in ("echo x >> /etc/passwd", "cat /etc/shadow", "echo x > /usr/bin/x",
                    "mount -t tmpfs none /mnt", "chroot /", "hostname other",
                    "echo 1 > /proc/sys/vm/drop_caches", "mknod n c 1 3"):  # fmt: skip
        assert daemon.execute(sandbox["id"], command)["exit_code"] != 0, command


def test_signals_are_at_their_defaults(daemon: Daemon, sandbox: Any) -> None:
    found = status(daemon, sandbox)
    for name in ("SigBlk", "SigIgn", "SigPnd"):
        # But 32 and 33, which are the C library's own and which no program can change.
        assert int(found[name], 16) & ~(0b11 << 31) == 0, name
    assert daemon.execute(sandbox["id"], "yes | head -1")["stdout"] == "y\n"


def test_it_leads_a_session_of_its_own(daemon: Daemon, sandbox: Any) -> None:
    code = "import os; print(os.getsid(0) == os.getpgid(0) == os.getpid())"
    assert daemon.execute(sandbox["id"], python(code))["stdout"] == "True\n"
    ran = daemon.execute(sandbox["id"], "echo x > /dev/tty")
    assert ran["exit_code"] != 0
