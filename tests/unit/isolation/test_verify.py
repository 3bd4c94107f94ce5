# SPDX-License-Identifier: Apache-2.0
"""The parent's check of a started command finds each single thing that was not given up."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sandboxd.isolation import seccomp, verify
from sandboxd.osutil import linux
from sandboxd.osutil.privileges import of_this_process

UID = 1879048192 + 4242
pytestmark = pytest.mark.usefixtures("requires_root", "requires_filter")


def bounding() -> None:
    linux.drop_capability_bounding_set()


def groups() -> None:
    os.setgroups([])


def gid() -> None:
    os.setresgid(UID, UID, UID)


def uid() -> None:
    os.setresuid(UID, UID, UID)


def capabilities() -> None:
    linux.clear_capabilities()


def no_new_privs() -> None:
    linux.set_no_new_privs()


def call_filter() -> None:
    seccomp.load(seccomp.Filter.COMMON)


STEPS = (bounding, groups, gid, uid, capabilities, no_new_privs, call_filter)


@contextmanager
def process(*steps: Callable[[], None]) -> Iterator[int]:
    """A process that took these steps and waits."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            for step in steps:
                step()
            os.write(write, b"x")
            signal.pause()
        finally:
            os._exit(1)
    os.close(write)
    try:
        assert os.read(read, 1) == b"x"
        yield pid
    finally:
        os.close(read)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def left(*steps: Callable[[], None]) -> str | None:
    with process(*steps) as pid:
        return verify.privileges_left(pid, UID, of_this_process(), is_filtered=True)


def without(missing: Callable[[], None]) -> list[Callable[[], None]]:
    return [step for step in STEPS if step is not missing]


def test_a_process_that_gave_all_up_is_right() -> None:
    assert left(*STEPS) is None


def test_a_missing_filter_is_found() -> None:
    assert left(*without(call_filter)) == "its system calls are not filtered"


def test_missing_no_new_privs_are_found() -> None:
    # As root a filter needs none.
    steps = (bounding, groups, gid, call_filter, uid, capabilities)
    assert left(*steps) == "no_new_privs is not set"


def test_a_missing_uid_is_found() -> None:
    assert "Uid" in str(left(*without(uid)))


@pytest.mark.parametrize("ids", [(UID, UID, 0), (UID, 0, 0), (0, UID, UID)])
def test_each_of_the_uids_counts(ids: tuple[int, int, int]) -> None:
    def some() -> None:
        os.setresuid(*ids)

    steps = [some if step is uid else step for step in STEPS]
    assert "Uid" in str(left(*steps))


def test_a_missing_gid_is_found() -> None:
    assert "Gid" in str(left(*without(gid)))


def test_groups_are_found() -> None:
    def some() -> None:
        os.setgroups([4, UID])

    assert "groups" in str(left(*[some if step is groups else step for step in STEPS]))


def test_a_full_bounding_set_is_found() -> None:
    assert "CapBnd" in str(left(*without(bounding)))


@pytest.mark.parametrize("name", ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
def test_one_capability_in_any_set_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = verify._status

    def doctored(pid: str) -> dict[str, str]:
        return read(pid) | {name: "0000000000000020"}

    monkeypatch.setattr(verify, "_status", doctored)
    assert name in str(left(*STEPS))


@pytest.mark.parametrize("mode", ["0", "1"])
def test_no_other_mode_of_seccomp_will_do(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = verify._status
    monkeypatch.setattr(verify, "_status", lambda pid: read(pid) | {"Seccomp": mode})
    assert left(*STEPS) == "its system calls are not filtered"


def test_a_filter_that_was_there_before_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container: each process has the container's."""
    read = verify._status

    def doctored(pid: str) -> dict[str, str]:
        return read(pid) | {"Seccomp": "2", "Seccomp_filters": "1"}

    monkeypatch.setattr(verify, "_status", doctored)
    assert left(*STEPS) == "its system calls are not filtered"


def test_an_unfiltered_one_s_own_user_namespace_is_no_privilege() -> None:
    def namespace() -> None:
        linux.unshare(0x10000000)

    steps = [step for step in STEPS if step is not call_filter]
    with process(*steps, namespace) as pid:
        assert verify.privileges_left(pid, UID, of_this_process(), is_filtered=False) is None
        assert verify.privileges_left(pid, UID, of_this_process(), is_filtered=True) is not None
