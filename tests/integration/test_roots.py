# SPDX-License-Identifier: Apache-2.0
"""Roots and networks of sandboxes live without a process, over restarts, and leave nothing."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sandboxd.cgroup.host import place
from sandboxd.core.remedies import Need, remedy
from tests.conftest import requires_program
from tests.contract.probes import eventually, find, printed, refused, start
from tests.fixtures import daemon_fixture
from tests.harness import Daemon, running_daemon
from tests.integration.process import refusal, unstarted
from tests.integration.test_supervisor_lacks import daemon_without

pytestmark = pytest.mark.usefixtures("requires_root", "requires_bubblewrap")
KINDS = ["ipc", "mnt", "net", "uts"]
MEMORY = {"SANDBOX_MEMORY_LIMIT_BYTES": "64M", "SANDBOX_CGROUP_MODE": "off"}
daemon = daemon_fixture(partial(running_daemon, **MEMORY), scope="function")


def pins(daemon: Daemon, sandbox: Any) -> Path:
    return daemon.runtime / "pins" / str(sandbox["id"])


def mounted(daemon: Daemon) -> list[str]:
    """Mount points of this host below the daemon's directories."""
    ours = (f"{daemon.runtime}/", f"{daemon.state}/")
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sorted(path for line in lines if (path := line.split()[4]).startswith(ours))


def said(daemon: Daemon, sandbox: Any, command: str, **body: Any) -> str:
    ran = daemon.execute(sandbox["id"], command, **body)
    assert ran["exit_code"] == 0, ran
    return str(ran["stdout"]).strip()


def spawner(daemon: Daemon) -> int:
    """Its forks have its command line as well, and are its children."""
    pids = find(f"spawner/__main__.py {daemon.runtime}")
    (pid,) = [pid for pid in pids if parent(pid) not in pids]
    return pid


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def builders(daemon: Daemon) -> list[int]:
    """Whoever is left of a build: forks of the spawner that are no shims, and bubblewrap."""
    children = Path(f"/proc/{spawner(daemon)}/task/{spawner(daemon)}/children").read_text().split()
    names = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in map(int, children)}
    return [pid for pid, line in names.items() if b"supervisor" not in line]


def test_an_idle_sandbox_has_pins_and_no_process(daemon: Daemon) -> None:
    made = daemon.create()
    assert sorted(path.name for path in pins(daemon, made).iterdir()) == KINDS
    assert mounted(daemon) == [
        f"{daemon.runtime}/pins",
        *(f"{pins(daemon, made)}/{kind}" for kind in KINDS),
    ]
    eventually(lambda: not builders(daemon))
    assert not find(f"{daemon.state}/sandboxes/{made['id']}")


@pytest.mark.parametrize(
    ("body", "kinds"),
    [({"isolation": "basic", "network": "host"}, []),
     ({"isolation": "basic"}, ["net"]),
     ({"network": "host"}, ["ipc", "mnt", "uts"])],
)  # fmt: skip
def test_only_what_is_asked_for_is_made(daemon: Daemon, body: Any, kinds: list[str]) -> None:
    made = daemon.create(**body)
    found = pins(daemon, made)
    assert sorted(path.name for path in found.iterdir()) == kinds if kinds else not found.exists()
    assert said(daemon, made, "echo works") == "works"


def test_a_release_leaves_no_mount_and_no_file(daemon: Daemon) -> None:
    kept = daemon.create()
    before = mounted(daemon)
    made = [daemon.create(**body) for body in ({}, {"isolation": "basic"}, {"network": "none"})]
    start(daemon, made[0], "sleep 300")
    for one in made:
        daemon.release(one["id"])
    assert mounted(daemon) == before
    assert [path.name for path in (daemon.runtime / "pins").iterdir()] == [kept["id"]]


def test_nothing_is_left_at_the_end_of_all_work(daemon: Daemon) -> None:
    made = daemon.create()
    start(daemon, made, "sleep 300")
    daemon.stop()
    assert mounted(daemon)
    daemon._stop_all()
    assert mounted(daemon) == []
    assert not (daemon.runtime / "pins").exists()
    daemon.start()
    assert daemon.request("GET", f"/v1/sandboxes/{made['id']}").json["state"] == "released"


@pytest.mark.parametrize("victims", ["daemon", "spawner", "both"])
def test_a_sandbox_keeps_its_place_over_restarts(daemon: Daemon, victims: str) -> None:
    made = daemon.create()
    look = (
        "stat -Lc %i /proc/self/ns/net /proc/self/ns/ipc /proc/self/ns/uts; cat /dev/shm/x /tmp/x"
    )
    said(daemon, made, "echo kept | tee /dev/shm/x > /tmp/x")
    before = said(daemon, made, look)
    running = start(daemon, made, "echo up; exec sleep 300")
    printed(daemon, running, b"up")
    if victims in ("spawner", "both"):
        os.kill(spawner(daemon), 9)
    if victims in ("daemon", "both"):
        daemon.kill()
        daemon.start()
    assert eventually(lambda: said(daemon, made, look)) == before
    daemon.release(made["id"])
    assert mounted(daemon) == [f"{daemon.runtime}/pins"]


def test_a_place_that_is_gone_is_made_anew_at_the_next_start(daemon: Daemon) -> None:
    made, gone = daemon.create(), daemon.create()
    daemon.stop()
    subprocess.run(["umount", str(pins(daemon, made) / "mnt")], check=True)
    for kind in KINDS:
        subprocess.run(["umount", str(pins(daemon, gone) / kind)], check=True)
    shutil.rmtree(pins(daemon, gone))
    daemon.start()
    for one in (made, gone):
        assert said(daemon, one, "echo works > /tmp/x; cat /tmp/x; uname -n") == "works\nsandbox"


def test_a_place_that_cannot_be_made_anew_is_a_sandbox_released(daemon: Daemon) -> None:
    made = daemon.create()
    daemon.stop()
    subprocess.run(["umount", str(pins(daemon, made) / "mnt")], check=True)
    shutil.rmtree(daemon.state / "sandboxes" / made["id"] / "home")
    daemon.start()
    released = eventually(
        lambda: daemon.ok("GET", f"/v1/sandboxes/{made['id']}")["state"] == "released"
    )
    assert released
    assert mounted(daemon) == [f"{daemon.runtime}/pins"]


def test_what_no_record_knows_is_taken_away(daemon: Daemon) -> None:
    made = daemon.create()
    daemon.stop()
    shutil.rmtree(daemon.state / "sandboxes" / made["id"])
    unknown = daemon.runtime / "pins" / "halfmade"
    unknown.mkdir()
    (unknown / "net").touch()
    daemon.start()
    assert mounted(daemon) == [f"{daemon.runtime}/pins"]
    assert list((daemon.runtime / "pins").iterdir()) == []


def test_a_create_that_fails_leaves_nothing(daemon: Daemon) -> None:
    before = mounted(daemon)
    body = {"rootfs": "missing"}
    refused(daemon.request("POST", "/v1/sandboxes", body), 400, "INVALID_REQUEST")
    assert mounted(daemon) == before
    assert os.listdir(daemon.state / "sandboxes") == []
    assert daemon.ok("GET", "/v1/host")["capacity"]["committed_bytes"] == 0


@pytest.mark.parametrize("whom", ["the builder", "the spawner too"])
def test_a_build_that_is_killed_leaves_nothing(tmp_path: Path, whom: str) -> None:
    program = tmp_path / "bwrap"
    shutil.copy2("/usr/bin/bwrap", program)
    over = 'mount --bind "$0" /usr/bin/bwrap && exec "$@"'
    # On one processor: from Linux 6.18 on the numbers of namespaces made on two are in no order,
    # but only one with a higher number than ours can be pinned, and ours is not the host's.
    prefix = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0))),
              "unshare", "--mount", "--propagation", "private",
              "sh", "-c", over, str(program)]  # fmt: skip
    with Daemon(**MEMORY).running(prefix=prefix) as daemon:
        grandparent = "$(cut -d ' ' -f 4 /proc/$PPID/stat)" if "spawner" in whom else ""
        # By now the network is pinned; bubblewrap ends with its parent.
        program.write_text(f"#!/bin/sh\nkill -9 {grandparent} $PPID\n")
        answer = daemon.request("POST", "/v1/sandboxes", {})
        assert answer.status >= 500, answer.body
        assert daemon.process is not None
        place = Path(f"/proc/{daemon.process.pid}")
        pinned = place / "root" / daemon.runtime.relative_to("/") / "pins"
        eventually(lambda: os.listdir(pinned) == [])
        assert (place / "mountinfo").read_text().count(f" {daemon.runtime}/") == 1
        assert os.listdir(daemon.state / "sandboxes") == []
        shutil.copy2("/usr/bin/bwrap", program)
        assert said(daemon, daemon.create(), "echo works") == "works"


# -- what of the host is in a root


@pytest.fixture
def package() -> Iterator[Path]:
    """A program's configuration, as its package would put it below /etc."""
    path = Path(tempfile.mkdtemp(prefix="sandboxd-test-", dir="/etc"))
    path.chmod(0o755)
    (path / "app.conf").write_text("configured\n")
    (path / "password").write_text("secret\n")
    (path / "password").chmod(0o600)
    yield path
    shutil.rmtree(path)


def test_a_programs_configuration_is_read_and_what_root_alone_may_read_is_not(
    daemon: Daemon, package: Path
) -> None:
    made = daemon.create()
    assert said(daemon, made, f"cat {package}/app.conf; ls {package}") == (
        "configured\napp.conf\npassword"
    )
    ran = daemon.execute(made["id"], f"cat {package}/password")
    assert (ran["stdout"], "Permission denied" in ran["stderr"]) == ("", True)


def test_what_programs_of_usr_have_below_var_lib_is_read(daemon: Daemon) -> None:
    program, state = Path("/var/lib/aspell"), Path("/var/lib/sandboxd-test-state")
    was_there = program.exists()
    data = program / f"sandboxd-test-{os.getpid()}"
    try:
        program.mkdir(exist_ok=True)
        data.write_text("words\n")
        state.mkdir()
        made = daemon.create()
        assert said(daemon, made, f"cat {data}") == "words"
        assert state.name not in said(daemon, made, "ls /var/lib").split()
    finally:
        data.unlink(missing_ok=True)
        state.rmdir()
        if not was_there:
            program.rmdir()


def test_nothing_below_etc_names_the_host(daemon: Daemon) -> None:
    made = daemon.create()
    inside = set(said(daemon, made, "ls -A /etc").split())
    assert not inside & {
        "adjtime", "apt", "crontab", "fstab", "gitconfig", "gshadow", "hostname", "machine-id",
        "mailname", "npmrc", "passwd-", "pip.conf", "resolv.conf", "shadow", "shadow-", "ssh",
        "subuid", "sudoers", "systemd",
    }  # fmt: skip
    people = [entry.pw_name for entry in pwd.getpwall() if 100 <= entry.pw_uid != 65534]
    listed = {line.split(":")[0] for line in said(daemon, made, "cat /etc/passwd").splitlines()}
    assert not listed & (set(people) - {"_apt"})
    assert os.uname().nodename not in said(daemon, made, "cat /etc/hosts; uname -n").split()


def test_an_admin_hides_and_shows_more_of_etc(package: Path) -> None:
    hidden, shown = f"{package.name}, corp-*", f"/opt, {package}/app.conf"
    with running_daemon(SANDBOX_ETC_HIDDEN=hidden, **MEMORY) as daemon:
        made = daemon.create()
        assert daemon.execute(made["id"], f"ls {package}")["exit_code"] != 0
    settings = {"SANDBOX_ETC_HIDDEN": hidden, "SANDBOX_SYSTEM_PATHS": shown}
    with running_daemon(**settings, **MEMORY) as daemon:
        made = daemon.create()
        assert said(daemon, made, f"ls {package}; cat {package}/*") == "app.conf\nconfigured"
    with unstarted() as other:
        assert "etc_hidden" in refusal(other, SANDBOX_ETC_HIDDEN="ssl/private")


def test_a_root_follows_what_the_host_installs_and_removes(daemon: Daemon, package: Path) -> None:
    for name in ("replaced", "removed"):
        (package / name).write_text("old\n")
    look = f"cd {package}; for name in new replaced removed; do"
    look += " cat $name 2>/dev/null || echo none; done; ls -l | tail -n +2 | cut -c 1"
    made = daemon.create()
    assert said(daemon, made, look).split() == ["none", "old", "old", *"----"]
    (package / "new").write_text("new\n")
    (package / "next").write_text("new\n")
    (package / "next").rename(package / "replaced")
    (package / "removed").unlink()
    # As if a second had passed since the last look at the host.
    os.utime(pins(daemon, made), (0, 0))
    assert said(daemon, made, look).split() == ["new", "new", "none", *"----"]


def test_the_hosts_names_are_followed_with_its_network(tmp_path: Path) -> None:
    etc = tmp_path / "etc"
    subprocess.run(["cp", "-a", "/etc", str(etc)], check=True)
    for path in (etc / "resolv.conf", etc / "hosts"):
        path.unlink(missing_ok=True)
        path.write_text("# first\n")
    # On one processor, as above.
    prefix = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0))),
              "unshare", "--mount", "--propagation", "private",
              "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', str(etc)]  # fmt: skip
    with Daemon(**MEMORY).running(prefix=prefix) as daemon:
        made, apart = daemon.create(network="host"), daemon.create(network="loopback")
        look = "cat /etc/resolv.conf /etc/hosts"
        assert said(daemon, made, look).split("\n") == ["# first"] * 2
        running = start(daemon, made, f"read x; {look}", stdin_open=True)
        for name in ("resolv.conf", "hosts"):
            (etc / "new").write_text(f"# then {name}\n")
            (etc / "new").rename(etc / name)
        assert said(daemon, made, look).split("\n") == ["# then resolv.conf", "# then hosts"]
        target = f"/v1/sandboxes/{made['id']}/executions/{running['id']}/stdin"
        assert daemon.request("POST", target, b"x\n").status < 300
        assert "then" in daemon.wait(running)["stdout"]
        hosts = said(daemon, apart, "ls /etc/resolv.conf || cat /etc/hosts")
        assert "localhost sandbox" in hosts


def test_hints_are_the_admins_choice() -> None:
    names = "JDK_JAVA_OPTIONS|JAVA_TOOL_OPTIONS|NODE_OPTIONS|GOMEMLIMIT|GOMAXPROCS"
    for chosen in ("JAVA_TOOL_OPTIONS,GOMAXPROCS", ","):
        with running_daemon(SANDBOX_RUNTIME_HINTS=chosen, **MEMORY) as daemon:
            shown = said(daemon, daemon.create(), f"env | grep -E '^({names})=' | sort || true")
        given = [line.partition("=")[0] for line in shown.splitlines()]
        assert given == ([] if chosen == "," else ["GOMAXPROCS", "JAVA_TOOL_OPTIONS"])
    with unstarted() as other:
        assert "runtime_hints" in refusal(other, SANDBOX_RUNTIME_HINTS="PYTHONPATH")


def test_processors_are_listed(daemon: Daemon) -> None:
    online = Path("/sys/devices/system/cpu/online").read_text().strip()
    made = daemon.create()
    assert said(daemon, made, "cat /sys/devices/system/cpu/online; ls /sys /sys/devices") == (
        f"{online}\n/sys:\ndevices\n\n/sys/devices:\nsystem"
    )
    assert daemon.execute(made["id"], ["lscpu"])["exit_code"] == 0


# -- images and binds


def copied_program(program: str, image: Path) -> None:
    """A program with the libraries it needs."""
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    libraries = [word for word in linked.split() if word.startswith("/")]
    for path in (program, *libraries):
        real = Path(path).resolve()
        target = image / "usr" / Path(path).relative_to("/usr" if path.startswith("/usr") else "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(real, target)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    image = tmp_path / "tiny"
    (image / "etc").mkdir(parents=True)
    (image / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    (image / "etc/only-here").write_text("image\n")
    for name in ("sh", "cat", "ls", "id"):
        copied_program(f"/usr/bin/{name}", image)
    for name in ("bin", "lib", "lib64"):
        (image / name).symlink_to(f"usr/{name}")
    (tmp_path / "foreign").mkdir(mode=0o777)
    (tmp_path / "foreign").chmod(0o777)
    (tmp_path / "link").symlink_to(image)
    return tmp_path


def test_an_image_is_the_root(images: Path) -> None:
    with running_daemon(SANDBOX_IMAGES_DIRECTORY=str(images), **MEMORY) as daemon:
        made = daemon.create(rootfs="tiny")
        assert made["rootfs"] == "tiny"
        look = "cat /etc/only-here; id -un; echo x > $HOME/f; cat ~/f"
        assert said(daemon, made, look).split() == ["image", "sandbox", "x"]
        assert "python3" not in said(daemon, made, "ls /usr/bin")
        assert daemon.execute(made["id"], "echo x > /etc/only-here")["exit_code"] != 0
        # Argv is looked for in the image, whatever the host has.
        answer = daemon.request("POST", f"/v1/sandboxes/{made['id']}/executions",
                                {"argv": ["/usr/bin/python3"]})  # fmt: skip
        refused(answer, 422, "EXECUTION_NOT_STARTED")
        for name in ("missing", "foreign", "link"):
            answer = daemon.request("POST", "/v1/sandboxes", {"rootfs": name})
            error = refused(answer, 400, "INVALID_REQUEST")
            assert error["details"]["fields"][0]["path"] == "rootfs"
        daemon.release(made["id"])
        assert mounted(daemon) == [f"{daemon.runtime}/pins"]


def test_binds_of_the_admins_list(tmp_path: Path) -> None:
    for directory in (tmp_path, *tmp_path.parents[:2]):
        directory.chmod(directory.stat().st_mode | 0o011)
    readable, writable = tmp_path / "readable", tmp_path / "writable"
    readable.mkdir()
    writable.mkdir()
    writable.chmod(0o777)
    (readable / "file").write_text("shared\n")
    (readable / "file").chmod(0o666)
    allowed = f"{readable}, {writable}:rw"
    with running_daemon(SANDBOX_BIND_PATHS=allowed, **MEMORY) as daemon:
        binds: list[dict[str, Any]] = [
            {"source": str(readable), "target": "/mnt/in"},
            {"source": str(writable), "target": "/srv/out", "writable": True},
        ]
        made = daemon.create(binds=binds)
        # Root's own are never mapped.
        text = "it belongs to root, whose files are never a sandbox's: chown it to a user"
        told = {"writable": False, "ownership": "host", "ownership_detail": text}
        assert made["binds"] == [{**told, **bind} for bind in binds]
        assert said(daemon, made, "cat /mnt/in/file; echo out > /srv/out/new") == "shared"
        assert (writable / "new").read_text() == "out\n"
        assert daemon.execute(made["id"], "echo x >> /mnt/in/file")["exit_code"] != 0
        for bind in (
            {"source": str(tmp_path), "target": "/mnt/in"},
            {"source": str(readable), "target": "/mnt/in", "writable": True},
        ):
            answer = daemon.request("POST", "/v1/sandboxes", {"binds": [bind]})
            refused(answer, 403, "ACCESS_DENIED")
        daemon.release(made["id"])


# -- hosts that cannot


def test_strict_is_refused_without_limits_by_the_kernel() -> None:
    with unstarted() as daemon:
        words = refusal(daemon, SANDBOX_ISOLATION="strict", SANDBOX_CGROUP_MODE="off")
    assert "SANDBOX_ISOLATION=strict" in words
    assert "limits held by the kernel" in words
    assert remedy(Need.KERNEL_LIMITS, place()) in words


def test_without_sys_admin_it_is_basic_and_says_why() -> None:
    with daemon_without("sys_admin") as daemon:
        isolation = daemon.ok("GET", "/v1/host")["isolation"]
        assert (isolation["default_level"], isolation["default_network"]) == ("basic", "host")
        for offer in (isolation["levels"]["standard"], isolation["networks"]["loopback"]):
            assert "CAP_SYS_ADMIN" in offer["lacks"][0]["remedy"]
        made = daemon.create()
        assert (made["isolation"], made["network"]) == ("basic", "host")
        assert said(daemon, made, "echo works") == "works"
        for body in ({"isolation": "standard"}, {"network": "none"}):
            refused(daemon.request("POST", "/v1/sandboxes", body), 400, "ISOLATION_UNSUPPORTED")


# As an unprivileged container is: a user and a pid namespace of its own, and a /proc that is not
# whole, so that the kernel lets nobody mount another one (mount_too_revealing).
_CONTAINER = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result != 0: raise OSError(ctypes.get_errno(), "cannot make a container")
read, write = os.pipe()
back, forth = os.pipe()
me = os.getpid()
if os.fork() == 0:
    os.read(read, 1)
    for name in ("uid_map", "gid_map"):
        open(f"/proc/{me}/{name}", "w").write("0 0 4294967295")
    os.write(forth, b"x")
    os._exit(0)
check(libc.unshare(0x10000000 | 0x20000000 | 0x00020000))
os.write(write, b"x"); os.read(back, 1); os.wait()
pid = os.fork()
if pid == 0:
    libc.prctl(1, 9, 0, 0, 0)
    check(libc.mount(b"none", b"/", None, 0x44000, None))
    check(libc.mount(b"proc", b"/proc", b"proc", 0, None))
    check(libc.mount(b"/dev/null", b"/proc/timer_list", None, 4096, None))
    os.execv(sys.argv[1], sys.argv[1:])
signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_in_a_container_whose_roots_may_not_have_proc_it_is_basic_and_runs() -> None:
    with Daemon(**MEMORY).running(prefix=[sys.executable, "-c", _CONTAINER]) as daemon:
        host = daemon.ok("GET", "/v1/host")
        assert host["isolation"]["default_level"] == "basic"
        lacks = host["isolation"]["levels"]["standard"]["lacks"]
        assert "mount /proc" in lacks[0]["what"]
        made = daemon.create()
        assert said(daemon, made, "echo works; id -u").startswith("works")
        daemon.release(made["id"])


def test_a_host_that_can_gives_an_execution_at_basic_mounts_of_its_own() -> None:
    with running_daemon(**MEMORY) as daemon:
        assert not [text for text in daemon.ok("GET", "/v1/host")["missing"] if "mounts" in text]


def test_a_bubblewrap_that_does_not_work_is_named() -> None:
    requires_program("unshare")
    broken = 'mount --bind /bin/false /usr/bin/bwrap && exec "$@"'
    prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c", broken, "sh"]
    with Daemon(**MEMORY).running(prefix=prefix) as daemon:
        isolation = daemon.ok("GET", "/v1/host")["isolation"]
        assert isolation["levels"]["standard"]["lacks"][0]["what"] == (
            "bubblewrap ended without a word"
        )
        made = daemon.create()
        assert (made["isolation"], made["network"]) == ("basic", "loopback")
        assert said(daemon, made, "echo works") == "works"
        daemon.release(made["id"])


@pytest.mark.parametrize("processor", sorted(os.sched_getaffinity(0))[:2])
def test_a_daemon_in_a_mount_namespace_of_its_own_makes_every_root(processor: int) -> None:
    """Since Linux 6.18 one made on another processor may count as older than the daemon's."""
    everywhere = ",".join(map(str, os.sched_getaffinity(0)))
    prefix = [
        "taskset", "--cpu-list", str(processor),
        "unshare", "--mount", "--propagation", "private",
        "taskset", "--cpu-list", everywhere,
    ]  # fmt: skip
    with Daemon(**MEMORY).running(prefix=prefix) as daemon:
        for _ in range(12):
            sandbox = daemon.create(isolation="standard")
            assert said(daemon, sandbox, "echo in") == "in"
            daemon.release(sandbox["id"])
