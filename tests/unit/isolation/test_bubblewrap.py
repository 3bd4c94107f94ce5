# SPDX-License-Identifier: Apache-2.0
"""What bwrap is told: the whole list once, and what must hold for any root."""

from __future__ import annotations

from dataclasses import replace

from sandboxd.isolation.bubblewrap import Root, arguments

ROOT = Root(
    readable=[
        ("/usr", "/usr"),
        ("/etc/ssl/certs", "/etc/ssl/certs"),
        ("/state/passwd", "/etc/passwd"),
    ],
    links=[("usr/bin", "/bin")],
    home=("/state/home", "/home/sandbox"),
    tmp_directory="/state/tmp",
    shm_bytes=4096,
)


def test_all_of_it() -> None:
    assert arguments("/usr/bin/bwrap", ROOT, info_fd=7) == [
        "/usr/bin/bwrap", "--unshare-ipc", "--unshare-uts", "--hostname", "sandbox",
        "--cap-drop", "ALL", "--chdir", "/", "--info-fd", "7",
        "--perms", "0755", "--dir", "/etc",
        "--perms", "0755", "--dir", "/etc/ssl",
        "--perms", "0755", "--dir", "/home",
        "--perms", "0755", "--dir", "/var",
        "--ro-bind", "/usr", "/usr",
        "--ro-bind", "/etc/ssl/certs", "/etc/ssl/certs",
        "--ro-bind", "/state/passwd", "/etc/passwd",
        "--symlink", "usr/bin", "/bin",
        "--dev", "/dev", "--dir", "/proc", "--dir", "/run",
        "--perms", "1777", "--size", "4096", "--tmpfs", "/dev/shm", "--remount-ro", "/dev",
        "--bind", "/state/tmp", "/tmp", "--bind", "/state/tmp", "/var/tmp",
        "--bind", "/state/home", "/home/sandbox",
        "--remount-ro", "/", "--", "/bin/sh", "-c", "echo ready; read -r line",
    ]  # fmt: skip


def test_nothing_is_made_inside_of_what_is_bound() -> None:
    root = replace(ROOT, readable=[*ROOT.readable, ("/image/etc", "/etc"), ("/x", "/mnt/a/b")])
    argv = arguments("bwrap", root, info_fd=3)
    made = [argv[at + 1] for at, word in enumerate(argv) if word == "--dir"]
    assert made == ["/home", "/mnt", "/mnt/a", "/var", "/proc", "/run"]


def test_only_home_tmp_and_what_was_asked_for_can_be_written() -> None:
    root = replace(ROOT, writable=[("/srv/cache", "/cache")])
    argv = arguments("bwrap", root, info_fd=3)
    written = {argv[at + 2] for at, word in enumerate(argv) if word == "--bind"}
    assert written == {"/tmp", "/var/tmp", "/home/sandbox", "/cache"}
    assert "--unshare-user" not in argv
    assert argv.index("--remount-ro") > argv.index("--tmpfs")
