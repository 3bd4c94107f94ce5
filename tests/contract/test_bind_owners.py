# SPDX-License-Identifier: Apache-2.0
"""Whose the files of a bind are: inside the sandbox's own where they belong to whoever made the
sandbox, and on the host that user's, whatever a command does."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import requires_program
from tests.contract.caller import CallerOf, caller
from tests.contract.probes import python, require_level
from tests.contract.selection import MODES
from tests.harness import Daemon, running_daemon

pytestmark = pytest.mark.usefixtures("requires_root")
OVERFLOW_ID = 65534
ACCOUNTS = [a for a in pwd.getpwall() if a.pw_gid != 0 and a.pw_uid not in (0, OVERFLOW_ID)]
OWNER, OTHER = ACCOUNTS[:2]
MEMORY = {"memory_bytes": "64M"}
_GIT = "git -c user.name=x -c user.email=x@example.org"


class Place:
    """Directories of the host that a daemon allows to be bound, each by its name."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.made("users", OWNER.pw_uid, OWNER.pw_gid, 0o755)
        self.allowed = f"{self.top}/users/moved:rw, " + ", ".join(
            f"{self.made(name, uid, gid, mode)}{'' if name == 'listed-ro' else ':rw'}"
            for name, uid, gid, mode in (
                ("owners", OWNER.pw_uid, OWNER.pw_gid, 0o755),
                ("private", OWNER.pw_uid, OWNER.pw_gid, 0o700),
                ("listed-ro", OWNER.pw_uid, OWNER.pw_gid, 0o755),
                ("others", OTHER.pw_uid, OTHER.pw_gid, 0o755),
                ("roots", 0, 0, 0o755),
                ("open", 0, 0, 0o1777),
                ("roots-group", OWNER.pw_uid, 0, 0o755),
                ("strange-group", OWNER.pw_uid, OTHER.pw_gid, 0o2775),
            )
        )

    def made(self, name: str, uid: int, gid: int, mode: int) -> Path:
        path = self.top / name
        path.mkdir()
        os.chown(path, uid, gid)
        path.chmod(mode)
        return path


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    top = Path(tempfile.mkdtemp(prefix="sandboxd-test-", dir="/var/lib"))
    top.chmod(0o755)
    yield Place(top)
    shutil.rmtree(top)


@pytest.fixture(scope="module")
def daemon(scheme: str, place: Place) -> Iterator[Daemon]:
    settings = {"SANDBOX_CGROUP_MODE": MODES[scheme], "SANDBOX_BIND_PATHS": place.allowed}
    with running_daemon(**settings) as running:
        running.open_to_all()
        yield running


@pytest.fixture(params=["standard", "strict"])
def offered(daemon: Daemon, request: pytest.FixtureRequest) -> str:
    return require_level(daemon, request.param)


Bound = Callable[..., Any]


@pytest.fixture
def bound(daemon: Daemon, place: Place, offered: str) -> Iterator[Bound]:
    """A function that makes a sandbox with a directory seen at /mnt/it, as root or a caller."""
    with contextlib.ExitStack() as cleanup:

        def make(name: str, by: CallerOf | None = None, *, writable: bool = True) -> Any:
            bind = {"source": str(place.top / name), "target": "/mnt/it", "writable": writable}
            body = {"isolation": offered, "binds": [bind], "limits": MEMORY}
            made = daemon.create(**body) if by is None else by.ok("POST", "/v1/sandboxes", body)
            cleanup.callback(daemon.release, made["id"])
            return made

        yield make


@pytest.fixture
def owner(daemon: Daemon) -> Iterator[CallerOf]:
    """Who has the directories, as a caller."""
    with caller(daemon, OWNER.pw_uid) as calls:
        yield calls


def said(daemon: Daemon, sandbox: Any, command: list[str] | str) -> str:
    ran = daemon.execute(sandbox["id"], command)
    assert ran["exit_code"] == 0, ran
    return str(ran["stdout"]).strip()


def ownership(sandbox: Any) -> tuple[str, str]:
    (bind,) = sandbox["binds"]
    return bind["ownership"], bind["ownership_detail"]


def ids(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_uid, status.st_gid


def test_git_works_and_what_is_made_is_the_owners(
    daemon: Daemon, place: Place, bound: Bound, owner: CallerOf
) -> None:
    requires_program("git")
    made = bound("owners", owner)
    assert ownership(made) == (
        "mapped", f"what it makes there belongs to {OWNER.pw_name} (uid {OWNER.pw_uid})"
    )  # fmt: skip
    name = f"repository-{made['id']}"
    work = f"cd /mnt/it && git init -q {name} && cd {name} && echo x > file && git add file"
    said(daemon, made, f"{work} && {_GIT} commit -qm one && git status --short")
    repository = place.top / "owners" / name
    for path in (repository, repository / "file", repository / ".git/HEAD"):
        assert ids(path) == (OWNER.pw_uid, OWNER.pw_gid), path
    assert said(daemon, made, "stat -c %u:%g /mnt/it") == said(
        daemon, made, "echo $(id -u):$(id -g)"
    )
    # And back: the owner's own git on the host, and another sandbox's.
    done = subprocess.run(
        ["git", "-C", str(repository), "log", "--format=%s"], user=OWNER.pw_uid,
        group=OWNER.pw_gid, env={"HOME": "/nonexistent", "PATH": os.defpath},
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("one\n", "")
    again = bound("owners", owner, writable=False)
    assert said(daemon, again, f"cd /mnt/it/{name} && git log --format=%s") == "one"


def test_read_only_is_the_owners_and_read_only(
    daemon: Daemon, place: Place, bound: Bound, owner: CallerOf
) -> None:
    file = place.top / "listed-ro" / "file"
    file.write_text("x")
    os.chown(file, OWNER.pw_uid, OWNER.pw_gid)
    file.chmod(0o600)
    made = bound("listed-ro", owner, writable=False)
    assert ownership(made)[0] == "mapped"
    assert said(daemon, made, "cat /mnt/it/file") == "x"
    code = "import os, errno\ntry: os.open('/mnt/it/file', os.O_WRONLY)\n"
    assert said(daemon, made, python(f"{code}except OSError as e: print(e.strerror)")) == (
        "Read-only file system"
    )


def test_roots_own_directory_is_never_mapped(daemon: Daemon, bound: Bound, owner: CallerOf) -> None:
    for by in (None, owner):
        made = bound("roots", by)
        kind, detail = ownership(made)
        assert kind == "host"
        assert "belongs to root" in detail
        ran = daemon.execute(made["id"], "echo x > /mnt/it/file")
        assert ran["exit_code"] != 0
        assert "Permission denied" in ran["stderr"]
        assert said(daemon, made, "stat -c %u:%g /mnt/it") == "0:0"


def test_a_directory_open_to_all_stays_as_it_was(
    daemon: Daemon, place: Place, bound: Bound
) -> None:
    made = bound("open")
    assert ownership(made)[0] == "host"
    uid = int(said(daemon, made, f"echo x > /mnt/it/{made['id']}; id -u"))
    assert ids(place.top / "open" / made["id"]) == (uid, uid)


def test_nobody_gets_what_is_another_users(
    daemon: Daemon, place: Place, bound: Bound, owner: CallerOf
) -> None:
    made = bound("others", owner)
    assert ownership(made) == (
        "host", f"it belongs to uid {OTHER.pw_uid}, and the sandbox to uid {OWNER.pw_uid}"
    )  # fmt: skip
    assert daemon.execute(made["id"], "echo x > /mnt/it/file")["exit_code"] != 0
    # Root may act for everybody, where it asks to write.
    assert ownership(bound("others", writable=False))[0] == "host"
    made = bound("others")
    assert ownership(made)[0] == "mapped"
    said(daemon, made, "echo x > /mnt/it/by-root")
    assert ids(place.top / "others" / "by-root") == (OTHER.pw_uid, OTHER.pw_gid)


@pytest.mark.parametrize("name", ["roots-group", "strange-group"])
def test_a_group_that_is_not_the_owners_is_not_given(
    daemon: Daemon, bound: Bound, owner: CallerOf, name: str
) -> None:
    for by in (None, owner):
        kind, detail = ownership(bound(name, by))
        assert kind == "host"
        assert "group" in detail


def test_others_files_are_read_by_their_mode_and_never_changed(
    daemon: Daemon, place: Place, bound: Bound, owner: CallerOf
) -> None:
    directory = place.top / "private"
    for name, mode in (("readable", 0o644), ("writable", 0o666), ("closed", 0o600)):
        (directory / name).write_text(name)
        (directory / name).chmod(mode)
    (directory / "folder").mkdir(exist_ok=True)
    (directory / "folder").chmod(0o777)
    made = bound("private", owner)
    assert ownership(made)[0] == "mapped"
    assert said(daemon, made, "cat /mnt/it/readable") == "readable"
    assert said(daemon, made, "stat -c %u:%g /mnt/it/readable") == f"{OVERFLOW_ID}:{OVERFLOW_ID}"
    for attempt in (
        "cat closed", "echo x >> writable", "chmod 777 readable", "rm -f readable",
        "mv readable r", "touch folder/x", "ln closed c", "chown 0 .",
    ):  # fmt: skip
        assert daemon.execute(made["id"], f"cd /mnt/it && {attempt}")["exit_code"] != 0, attempt
    assert {path.name for path in directory.iterdir()} == {
        "readable", "writable", "closed", "folder"
    }  # fmt: skip
    assert (directory / "writable").read_text() == "writable"


SET_ID = """
import ctypes, os, stat, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
os.umask(0)
path = sys.argv[1]
def call(*words):
    if libc.syscall(*(w if isinstance(w, bytes) else ctypes.c_long(w) for w in words)) < 0:
        raise OSError(ctypes.get_errno(), "")
open(path, "w").close()
os.chmod(path, 0o755)
for way in (
    lambda: os.chmod(path, 0o4755),
    lambda: os.fchmod(os.open(path, os.O_RDONLY), 0o2755),
    lambda: call(452, -100, path.encode(), 0o4755, 0),
    lambda: os.open(path + "-opened", os.O_CREAT | os.O_WRONLY, 0o4755),
    lambda: os.open(os.path.dirname(path), os.O_TMPFILE | os.O_WRONLY, 0o4755),
    lambda: os.mknod(path + "-made", stat.S_IFREG | 0o4755),
    lambda: call(437, -100, (path + "-2").encode(), struct.pack("<3Q", 0o101, 0o4755, 0), 24),
):
    try: way()
    except OSError as exc: print(exc.strerror or os.strerror(exc.errno))
    else: print("done")
"""
REFUSED_SET_ID = {"Operation not permitted", "Function not implemented"}


def test_no_set_id_bit_gets_out(
    daemon: Daemon, place: Place, bound: Bound, owner: CallerOf
) -> None:
    """Who runs such a file on the host would be its owner: the bind's, or the next sandbox with the
    uid of this one."""
    for name in ("owners", "open"):
        made = bound(name, owner)
        # A file of its own: in a sticky directory the next level's sandbox may not open this one.
        ways = said(daemon, made, python(SET_ID, f"/mnt/it/set-id-{made['id']}")).splitlines()
        assert len(ways) == 7
        assert set(ways) <= REFUSED_SET_ID, name
        for file in (place.top / name).glob("set-id*"):
            assert not file.stat().st_mode & 0o6000, file
    # Where nothing gets out it is as ever.
    for name in ("open", "owners"):
        other = bound(name, owner, writable=False)
        assert "done" in said(daemon, other, python(SET_ID, "/home/sandbox/set-id"))


def test_a_set_id_file_of_the_owners_gives_nothing_inside(
    daemon: Daemon, place: Place, bound: Bound, owner: CallerOf
) -> None:
    file = place.top / "owners" / "old-set-id"
    shutil.copy("/usr/bin/id", file)
    os.chown(file, OWNER.pw_uid, OWNER.pw_gid)
    file.chmod(0o6755)
    made = bound("owners", owner)
    own = said(daemon, made, "id -u")
    assert said(daemon, made, "/mnt/it/old-set-id -u; /mnt/it/old-set-id -g").split() == [own, own]
    # What is written into it loses the bits.
    said(daemon, made, "echo x >> /mnt/it/old-set-id")
    assert stat.S_IMODE(file.stat().st_mode) == 0o755
    for attempt in ("chown 0 old-set-id", "chgrp 0 old-set-id"):
        assert daemon.execute(made["id"], f"cd /mnt/it && {attempt}")["exit_code"] != 0, attempt
    assert ids(file) == (OWNER.pw_uid, OWNER.pw_gid)


def test_nobody_but_root_decides_where_a_listed_path_leads(
    daemon: Daemon, place: Place, offered: str, owner: CallerOf
) -> None:
    path = place.top / "users" / "moved"
    shutil.rmtree(path, ignore_errors=True)
    path.unlink(missing_ok=True)
    path.symlink_to("/run")
    os.lchown(path, OWNER.pw_uid, OWNER.pw_gid)
    bind = {"source": str(path), "target": "/mnt/it", "writable": True}
    body = {"isolation": offered, "binds": [bind], "limits": MEMORY}
    for by in (owner, daemon):
        refused = by.request("POST", "/v1/sandboxes", body)
        assert refused.status == 400
        (field,) = refused.json["error"]["details"]["fields"]
        assert field["path"] == "binds"
        assert f"belongs to uid {OWNER.pw_uid}" in field["reason"]
    # A link of root's is root's decision.
    os.lchown(path, 0, 0)
    made = daemon.create(**body)
    assert said(daemon, made, "stat -c %i /mnt/it") == str(os.stat("/run").st_ino)
    daemon.release(made["id"])


def test_it_stays_so_for_the_next_daemon(daemon: Daemon, bound: Bound, owner: CallerOf) -> None:
    made = bound("owners", owner)
    daemon.kill()
    daemon.start()
    again = daemon.ok("GET", f"/v1/sandboxes/{made['id']}")
    assert again["binds"] == made["binds"]
    said(daemon, made, f"touch /mnt/it/{made['id']}")


@pytest.mark.usefixtures("requires_bubblewrap")
def test_the_host_says_which_paths_nobody_could_write(daemon: Daemon, place: Place) -> None:
    missing = daemon.ok("GET", "/v1/host")["missing"]
    told = {
        path.name for path in place.top.iterdir()
        if any(text.startswith(f"binds of {path}: ") for text in missing)
    }  # fmt: skip
    assert told == {"roots", "roots-group", "strange-group"}
