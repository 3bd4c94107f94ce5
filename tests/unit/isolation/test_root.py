# SPDX-License-Identifier: Apache-2.0
"""What of a host or an image goes into a root."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandboxd.isolation.root import BadImage, describe
from sandboxd.protocol.building import BindSpec, HostParts, RootSpec

HOST = HostParts(is_strict=False, system_paths=(), etc_hidden=(), identity_files={})
ROOT = RootSpec(
    host=HOST, image=None, layers=True, home="/state/home", home_inside="/home/sandbox",
    tmp_directory="/state/tmp", shm_bytes=4096, binds=(),
)  # fmt: skip


def spec(*, host: dict[str, Any] | None = None, **changes: Any) -> RootSpec:
    return replace(ROOT, host=replace(HOST, **host or {}), **changes)


def image_in(directory: Path) -> Path:
    image = directory / "image"
    for name in ("usr/bin", "etc", "opt/app", "proc", "var/lib", "root", "home/x"):
        (image / name).mkdir(parents=True)
    (image / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (image / "bin").symlink_to("usr/bin")
    (image / "file").write_text("")
    return image


def test_of_the_host_only_what_programs_need_and_no_secret() -> None:
    root = describe(spec(host={"identity_files": {"/etc/passwd": "/state/passwd"}}))
    sources = {path: source for source, path in root.readable}
    assert (sources["/usr"], sources["/etc"]) == ("/usr", "/etc")
    assert sources["/etc/passwd"] == "/state/passwd"
    others = {path for path in sources if not path.startswith(("/usr", "/etc"))}
    assert {path.split("/")[1] for path in others} <= {
        "bin", "sbin", "lib", "lib32", "lib64", "libx32", "var", "sys",
    }  # fmt: skip
    assert not others & {"/var", "/var/lib", "/sys"}
    assert all(os.path.exists(source) or source == "/state/passwd" for source in sources.values())
    assert root.masks["/etc"].own == ("passwd",)
    assert {"machine-id", "hosts", "resolv.conf", "shadow"} <= set(root.masks["/etc"].hidden)
    assert "passwd" not in root.masks["/etc"].hidden


def test_a_host_without_layers_gives_the_same_one_by_one() -> None:
    files = {"/etc/passwd": "/state/passwd"}
    root = describe(spec(host={"identity_files": files}, layers=False))
    assert root.shared == ()
    sources = [source for source, path in root.readable if path == "/etc/passwd"]
    assert sources == ["/state/passwd"]
    names = {path.removeprefix("/etc/") for _, path in (*root.readable, *root.links)}
    mask = root.masks["/etc"]
    listed = {name for name in os.listdir("/etc") if name not in (*mask.hidden, *mask.own)}
    assert listed == {name for name in names if not name.startswith("/")} - {"passwd"}
    assert all(not os.path.islink(source) for source, _ in root.readable)


def test_how_idle_processors_are_is_not_for_strict() -> None:
    seen = {path for _, path in describe(spec(host={"is_strict": True})).readable}
    assert not any(path.startswith("/sys") for path in seen)
    seen = {path for _, path in describe(spec()).readable}
    assert ("/sys/devices/system/cpu" in seen) == os.path.exists("/sys/devices/system/cpu")


def test_system_paths_and_binds(tmp_path: Path) -> None:
    there, missing = str(tmp_path), str(tmp_path / "missing")
    binds = (BindSpec("/a", "/mnt/a", False), BindSpec("/b", "/mnt/b", True))
    root = describe(spec(host={"system_paths": (there, missing)}, binds=binds))
    assert (there, there) in root.readable
    assert missing not in dict(root.readable)
    assert ("/a", "/mnt/a") in root.readable
    assert root.writable == [("/b", "/mnt/b")]


@pytest.mark.usefixtures("requires_root")
def test_an_image_takes_the_hosts_place(tmp_path: Path) -> None:
    image = image_in(tmp_path)
    files = {"/etc/passwd": "/state/passwd", "/etc/hosts": "/state/hosts"}
    root = describe(spec(image=str(image), host={"identity_files": files}))
    assert list(root.readable) == [
        (f"{image}/etc", "/etc"), (f"{image}/opt", "/opt"), (f"{image}/usr", "/usr"),
        ("/state/passwd", "/etc/passwd"),
    ]  # fmt: skip
    assert list(root.links) == [("usr/bin", "/bin")]


@pytest.mark.usefixtures("requires_root")
def test_an_image_that_others_may_have_changed_is_refused(tmp_path: Path) -> None:
    image = image_in(tmp_path)
    other = tmp_path / "link"
    other.symlink_to(image)
    for path, reason in ((tmp_path / "none", "no such image"), (other, "not a directory")):
        with pytest.raises(BadImage, match=reason):
            describe(spec(image=str(path)))
    image.chmod(0o777)
    with pytest.raises(BadImage, match="written by others"):
        describe(spec(image=str(image)))
    image.chmod(0o755)
    os.chown(image, 1000, 0)
    with pytest.raises(BadImage, match="written by others"):
        describe(spec(image=str(image)))
    os.chown(image, 0, 0)
    (image / "etc/passwd").unlink()
    with pytest.raises(BadImage, match="no /etc/passwd"):
        describe(spec(image=str(image)))
