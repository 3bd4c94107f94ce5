# SPDX-License-Identifier: Apache-2.0
"""The package's own scripts on hosts as admins leave them, in namespaces with an empty /run and
/var/lib: there is no systemd then, and no process but the test's."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ANOTHER_UID
from tests.harness import ROOT

pytestmark = [pytest.mark.usefixtures("requires_root")]
SPAWNER = "/x/sandboxd/spawn/__main__.py /run/sandboxd/spawner.sock"
SUPERVISOR = "/x/sandboxd/supervisor/__main__.py /run/sandboxd"
# A shell by Python's name, and what it takes to see that one has ended, or has not.
PRELUDE = r"""
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
export SCRATCH=/run/scratch
mkdir -m 1777 $SCRATCH
cp /bin/sh $SCRATCH/python3
mkdir -p /run/sandboxd /run/sandboxd-uids /var/lib/sandboxd
python() { as=$1; shift; $as "$SCRATCH/python3" -c "$WAIT" "$@" & }
state() {
    if grep -qs '^State:.[^Z]' "/proc/$1/status"; then echo on; else echo ended; fi
}
purge() { sh "$SCRIPTS/sandboxd.postrm" purge; }
"""
WAIT = "mkfifo $SCRATCH/$$; read -r nothing < $SCRATCH/$$; :"


def host(work: str) -> list[str]:
    """What a shell prints that does `work` after the prelude; all that it starts ends with it."""
    enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-e", "-c"]
    done = subprocess.run(
        [*enter, PRELUDE + work],
        env={**os.environ, "SCRIPTS": str(ROOT / "debian"), "WAIT": WAIT},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_what_runs_is_printed_as_sandboxctl_prints_it(tmp_path: Path) -> None:
    # Backslashes of a command, which `echo` of dash obeys: \c hides all that follows.
    listed = r"box execution RUNNING sh -c '\0033]0;title\0007 \c'"
    sandboxctl = tmp_path / "bin/sandboxctl"
    sandboxctl.parent.mkdir()
    sandboxctl.write_text(f"#!/bin/sh\ncat <<'END'\nSANDBOX\n{listed}\nlast\nEND\n")
    sandboxctl.chmod(0o755)
    said = host(f'PATH="{tmp_path}/bin:$PATH" sh "$SCRIPTS/sandboxd.prerm" remove')
    assert said[1:-1] == ["SANDBOX", listed, "last"]


def test_what_may_still_run_is_named_without_a_daemon_too() -> None:
    work = r"""
    mkdir -p /run/sandboxd/executions/boxboxboxbox-executionexe
    sh "$SCRIPTS/sandboxd.prerm" remove
    """
    said = host(work)
    assert "boxboxboxbox-executionexe" in said
    assert host(work.replace("mkdir", ": mkdir")) == []


def test_removal_ends_the_daemon_that_no_service_manager_ended() -> None:
    work = r"""
    : > /var/lib/sandboxd/lock
    mkdir /var/lib/other
    : > /var/lib/other/lock
    for of in sandboxd other; do
        "$SCRATCH/python3" -c "exec 9<> /var/lib/$of/lock; $WAIT" /usr/sbin/sandboxd &
        eval "$of=$!"
        until [ -e "$SCRATCH/$!" ]; do sleep 0.05; done
    done
    sh "$SCRIPTS/sandboxd.postrm" remove
    state $sandboxd; state $other
    [ -d /var/lib/sandboxd ]
    """
    assert host(work) == ["ended", "on"]


def test_purge_ends_what_is_the_services_and_nothing_else() -> None:
    work = rf"""
    python '' {SPAWNER}
    spawner=$!
    python '' {SPAWNER} 60.0
    idle=$!
    python '' {SUPERVISOR}
    supervisor=$!
    python 'setpriv --reuid={ANOTHER_UID} --regid={ANOTHER_UID} --clear-groups' {SPAWNER}
    somebody=$!
    python '' /x/sandboxd/spawn/__main__.py /run/sandboxd-other/spawner.sock
    other=$!
    for pid in $spawner $idle $supervisor $somebody $other; do
        until [ -e "$SCRATCH/$pid" ]; do sleep 0.05; done
    done
    purge
    state $spawner; state $idle; state $supervisor
    state $somebody; state $other
    """
    assert host(work) == ["ended", "ended", "ended", "on", "on"]


def test_purge_leaves_the_service_of_another_root_alone() -> None:
    # A container's, or the host's when the package goes from a chroot.
    work = rf"""
    mkdir "$SCRATCH/root"
    mount -t tmpfs tmpfs "$SCRATCH/root"
    cp -P /bin /lib* "$SCRATCH/root/" 2>/dev/null || true
    mkdir -p "$SCRATCH/root/usr" "$SCRATCH/root$SCRATCH"
    mount --bind /usr "$SCRATCH/root/usr"
    mount --bind "$SCRATCH" "$SCRATCH/root$SCRATCH"
    python "chroot $SCRATCH/root" {SPAWNER}
    until [ -e "$SCRATCH/$!" ]; do sleep 0.05; done
    purge
    state $!
    """
    assert host(work) == ["on"]


def test_purge_ends_commands_that_outlive_their_shims() -> None:
    # As without CAP_SYS_ADMIN, where there are no pid namespaces.
    work = rf"""
    echo instance > /var/lib/sandboxd/instance
    echo "instance box" > /run/sandboxd-uids/{ANOTHER_UID}
    echo "another box" > /run/sandboxd-uids/{ANOTHER_UID + 1}
    python 'setpriv --reuid={ANOTHER_UID} --regid={ANOTHER_UID} --clear-groups' command
    ours=$!
    python 'setpriv --reuid={ANOTHER_UID + 1} --regid={ANOTHER_UID + 1} --clear-groups' command
    theirs=$!
    for pid in $ours $theirs; do until [ -e "$SCRATCH/$pid" ]; do sleep 0.05; done; done
    purge
    state $ours; state $theirs
    ls /run/sandboxd-uids
    """
    assert host(work) == ["ended", "on", str(ANOTHER_UID + 1)]


def test_purge_empties_a_state_directory_that_is_a_file_system() -> None:
    work = r"""
    mount -t tmpfs tmpfs /var/lib/sandboxd
    mkdir -p /var/lib/sandboxd/sandboxes/box /var/lib/sandboxd/lost+found
    : > /var/lib/sandboxd/lock
    mkdir "/run/sandboxd/a b"
    mount -t tmpfs tmpfs "/run/sandboxd/a b"
    purge
    mountpoint -q /var/lib/sandboxd
    ls /var/lib/sandboxd
    ! grep -E ' /run/sandboxd[/ ]' /proc/self/mountinfo
    [ ! -e /run/sandboxd ]
    """
    assert host(work) == ["lost+found"]


def test_purge_empties_a_state_directory_behind_a_link() -> None:
    work = r"""
    rmdir /var/lib/sandboxd
    mkdir -p /var/lib/data/sandboxes/box
    : > /var/lib/data/history.sqlite-wal
    echo kept > /var/lib/data/of-the-admin
    ln -s data /var/lib/sandboxd
    purge
    [ ! -L /var/lib/sandboxd ]
    ls /var/lib/data
    """
    assert host(work) == ["of-the-admin"]


def test_the_bundled_package_can_be_removed_when_its_files_are_gone() -> None:
    host('sh -e "$SCRIPTS/../packaging/bundled/compile.prerm" remove')
