# SPDX-License-Identifier: Apache-2.0
"""Whose files a sandbox may have as its own, and what is said where that cannot be."""

from __future__ import annotations

import errno
import os
import pwd
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.core.binds import MAX_BINDS
from sandboxd.isolation import ownership
from sandboxd.isolation.ownership import Owner, Plan, Tree, refusal
from sandboxd.isolation.sources import BadSource
from sandboxd.osutil import linux
from sandboxd.protocol.building import ANSWERS, BindSpec, BindVerdict, Built
from sandboxd.protocol.records import MAX_BUILDER_ANSWER_BYTES
from tests.conftest import unmet

SANDBOX_UID = 65540
IDS = st.sampled_from([0, 1, 2, 1000, 65540])


@pytest.mark.parametrize(
    ("uid", "gid", "by", "writable", "groups", "said"),
    [
        (1000, 1000, 1000, True, (1000,), None),
        (1000, 1000, 1000, False, (1000,), None),
        (1000, 50, 1000, True, (1000, 50), None),
        (1000, 1000, 0, True, (1000,), None),
        (1000, 1000, 0, False, (1000,), "read-only"),
        (0, 0, 0, True, (0,), "belongs to root"),
        (1001, 1001, 1000, True, (1001,), "it belongs to uid 1001, and the sandbox to uid 1000"),
        (1000, 1000, 1000, True, None, "no account"),
        (1000, 0, 1000, True, (1000, 0), "group, gid 0"),
        (1000, 42, 1000, True, (1000,), "group, gid 42"),
        (1000, 42, 0, True, (1000,), "group, gid 42"),
    ],
)
def test_whose_is_mapped(
    uid: int, gid: int, by: int, writable: bool, groups: Any, said: str | None
) -> None:
    found = refusal(uid, gid, sandbox_owner=by, writable=writable, groups=groups)
    if said is None:
        assert found is None
    else:
        assert found is not None
        assert said in found


@given(
    uid=IDS, gid=IDS, by=IDS, writable=st.booleans(), groups=st.none() | st.frozensets(IDS)
)  # fmt: skip
def test_nobody_gets_more_than_they_have(
    uid: int, gid: int, by: int, writable: bool, groups: Any
) -> None:
    if refusal(uid, gid, sandbox_owner=by, writable=writable, groups=groups) is None:
        assert 0 not in (uid, gid)
        assert gid in groups
        assert by in (0, uid)


def bind(source: Path, *, writable: bool = True) -> BindSpec:
    return BindSpec(str(source), "/mnt/a", writable)


def test_a_source_that_is_not_there_has_no_owner(tmp_path: Path) -> None:
    (plan,) = ownership.plan([bind(tmp_path / "none")], 0)
    assert (plan.owner, plan.why) == (None, "No such file or directory")


def test_all_are_bound_from_where_they_were_put() -> None:
    binds = [bind(Path("/a")), bind(Path("/b"))]
    placed = ownership.placed(binds, "/scratch")
    assert [one.source for one in placed] == ["/scratch/0", "/scratch/1"]
    assert {one.target for one in placed} == {"/mnt/a"}


def test_a_detail_has_a_bound() -> None:
    for tree in (Tree(None, "x" * 5000), Tree(3, "x" * 5000)):
        answer = Built((tree.verdict,) * MAX_BINDS)
        assert len(ANSWERS.encode(answer)) < MAX_BUILDER_ANSWER_BYTES


@pytest.fixture
def owned(tmp_path: Path, requires_root: None) -> tuple[Path, Plan]:
    """A directory of a user's, and what is planned for it."""
    account = next(a for a in pwd.getpwall() if a.pw_uid and a.pw_gid)
    os.chown(tmp_path, account.pw_uid, account.pw_gid)
    (plan,) = ownership.plan([bind(tmp_path)], account.pw_uid)
    assert plan.owner is not None
    assert (plan.owner.uid, plan.owner.gid) == (account.pw_uid, account.pw_gid)
    return tmp_path, plan


def test_a_tree_is_mapped_and_nothing_stays(owned: tuple[Path, Plan]) -> None:
    _, plan = owned
    before = set(os.listdir("/proc/self/fd"))
    with ownership.trees([plan], SANDBOX_UID) as (tree,):
        if tree.fd is None:
            unmet(f"no idmapped mounts here: {tree.detail}")
        status = os.fstat(tree.fd)
        assert (status.st_uid, status.st_gid) == (SANDBOX_UID, SANDBOX_UID)
        assert tree.verdict.is_mapped
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EINVAL, "its file system"),
        (errno.EPERM, "may not map"),
        (errno.ENOSYS, "Linux 5.12"),
        (errno.ENOMEM, "cannot"),
    ],
)
@pytest.mark.parametrize("step", ["open_tree", "map_owners", "unshare"])
def test_a_host_that_cannot_says_why(
    owned: tuple[Path, Plan], monkeypatch: pytest.MonkeyPatch, step: str, number: int, said: str
) -> None:
    def fail(*arguments: object) -> int:
        raise OSError(number, "cannot")

    monkeypatch.setattr(linux, step, fail)
    before = set(os.listdir("/proc/self/fd"))
    with ownership.trees([owned[1]], SANDBOX_UID) as (tree,):
        assert tree.fd is None
        detail = tree.verdict.detail
        assert not tree.verdict.is_mapped
        assert said in detail or os.strerror(number) in detail
    assert set(os.listdir("/proc/self/fd")) == before


def test_what_was_given_away_meanwhile_is_not_mapped(owned: tuple[Path, Plan]) -> None:
    path, plan = owned
    os.chown(path, 0, 0)
    with ownership.trees([plan], SANDBOX_UID) as (tree,):
        assert tree.verdict == BindVerdict(False, "it was given to somebody else just now")
    plan = Plan(str(path), Owner(12345, 12345, "x"), "")
    with ownership.trees([plan], SANDBOX_UID) as (tree,):
        assert tree.fd is None


def test_what_an_admin_is_told_of_the_listed_paths(owned: tuple[Path, Plan]) -> None:
    path, _ = owned
    roots = path / "roots"
    roots.mkdir()
    open_to_all = path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o1777)
    listed = [
        bind(roots), bind(roots, writable=False), bind(open_to_all), bind(path / "none"), bind(path)
    ]  # fmt: skip
    said = ownership.try_out(listed, SANDBOX_UID)
    assert "belongs to root" in said[0]
    assert said[1:3] == ["", ""]
    assert said[3] == "No such file or directory"


def test_a_link_of_a_users_is_refused(owned: tuple[Path, Plan]) -> None:
    path, plan = owned
    link = path / "link"
    link.symlink_to("/")
    os.lchown(link, 1, 1)
    with pytest.raises(BadSource):
        ownership.plan([bind(link)], 0)
    for writable in (True, False):
        (said,) = ownership.try_out([bind(link, writable=writable)], SANDBOX_UID)
        assert "belongs to uid 1" in said
    # Put in place of the directory after the plan.
    with ownership.trees([replace(plan, source=str(link))], SANDBOX_UID) as (tree,):
        assert tree.fd is None
