# SPDX-License-Identifier: Apache-2.0
"""Directories as tar streams: whole both ways, and nothing outside is ever touched."""

from __future__ import annotations

import io
import os
import socket
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.client import trees
from sandboxd.errors import InvalidRequest


def nothing(name: str, reason: str) -> None:
    raise AssertionError(f"left out: {name}: {reason}")


def pack(directory: str, leave_out: trees.LeaveOut = nothing) -> Iterator[bytes]:
    return trees.pack(directory, leave_out)


def unpack(data: Iterator[bytes], directory: str, leave_out: trees.LeaveOut = nothing) -> None:
    trees.unpack(data, directory, leave_out)


def pieces(data: bytes, size: int = 700) -> Iterator[bytes]:
    return (data[begin : begin + size] for begin in range(0, len(data), size))


def archive(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as made:
        for info, data in members:
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return target.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, target, 0o4755
    return info


def test_a_tree_comes_out_as_it_went_in(tmp_path: Path) -> None:
    out: dict[str, str] = {}
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "a/empty").mkdir(parents=True)
    (source / "a/big").write_bytes(os.urandom(600_000))
    (source / "a/ü\udcff").write_bytes(b"")
    (source / ("long" * 60)).write_text("x")
    (source / "a/run").write_text("#!/bin/sh")
    (source / "a/run").chmod(0o755)
    (source / "link").symlink_to("a/big")
    (source / "loop").symlink_to("..")
    with socket.socket(socket.AF_UNIX) as left_out:
        left_out.bind(str(source / "socket"))
    for path in (source / "a/big", source / "a/empty", source / "a", source):
        os.utime(path, (1000, 1000))
    (source / "a").chmod(0o550)
    target.mkdir()
    data = b"".join(pack(str(source), out.__setitem__))
    unpack(pieces(data), str(target), out.__setitem__)
    assert {Path(name).name: reason.split()[0] for name, reason in out.items()} == {
        "socket": "neither", "loop": "a",
    }  # fmt: skip
    for path in (target / "a/big", target / "a/empty", target / "a", target):
        assert path.stat().st_mtime == 1000
    assert (target / "a").stat().st_mode & 0o777 == 0o550
    (source / "a").chmod(0o755)
    (target / "a").chmod(0o755)
    for parent, directories, files in os.walk(source):
        there = target / Path(parent).relative_to(source)
        for name in {*directories, *files} - {"socket", "loop"}:
            made, original = there / name, Path(parent, name)
            assert made.is_symlink() == original.is_symlink()
            assert made.is_file() == original.is_file()
            if original.is_file():
                assert made.read_bytes() == original.read_bytes()
                assert made.stat().st_mode == original.stat().st_mode
    assert not (target / "loop").is_symlink()


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(InvalidRequest, match="leads out"):
        unpack(pieces(archive((member(name), b"x"))), str(target))
    assert [path.name for path in tmp_path.rglob("*")] == ["target"]


def test_no_link_of_the_archive_is_ever_written_through(tmp_path: Path) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    evil = archive(
        (member("out", tarfile.SYMTYPE, str(outside)), b""),
        (member("out/file"), b"x"),
        (member("up", tarfile.SYMTYPE, "../outside"), b""),
        (member("up/file"), b"x"),
        (member("dev", tarfile.CHRTYPE), b""),
        (member("hard", tarfile.LNKTYPE, "/etc/passwd"), b""),
        (member("good", tarfile.SYMTYPE, "out/file"), b""),
    )
    unpack(pieces(evil), str(target), lambda name, reason: None)
    assert list(outside.iterdir()) == []
    assert (target / "good").readlink() == Path("out/file")
    assert {path.name for path in target.iterdir()} == {"out", "up", "good"}
    assert (target / "out/file").read_bytes() == b"x"
    assert (target / "out/file").stat().st_mode & 0o7000 == 0


@pytest.mark.parametrize("name", ["up/file", "up", "a/up/new/file"])
def test_no_link_that_was_there_before_is_written_through(tmp_path: Path, name: str) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    for directory in (target, outside, target / "a"):
        directory.mkdir()
    for link in (target / "up", target / "a/up"):
        link.symlink_to(outside)
    kinds = (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE)
    for kind in kinds if "/" in name else (tarfile.DIRTYPE,):
        with pytest.raises(InvalidRequest, match="symbolic link"):
            unpack(pieces(archive((member(name, kind, "x"), b""))), str(target))
    assert list(outside.iterdir()) == []


def test_the_directory_itself_may_not_have_become_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "target").symlink_to(outside)
    with pytest.raises(InvalidRequest, match="symbolic link"):
        unpack(pieces(archive((member("file"), b"x"))), str(tmp_path / "target"))
    assert list(outside.iterdir()) == []


def test_links_that_lead_out_together_are_left_out(tmp_path: Path) -> None:
    out: dict[str, str] = {}
    target = tmp_path / "outer/target"
    target.mkdir(parents=True)
    evil = archive(
        (member("a/b/c", tarfile.DIRTYPE), b""),
        (member("a/b/c/top", tarfile.SYMTYPE, "../../.."), b""),
        # By its text it ends at a/b; by the kernel's reading two above the target.
        (member("out", tarfile.SYMTYPE, "a/b/c/top/../.."), b""),
        (member("later/x/y", tarfile.SYMTYPE, "../../a/b"), b""),
    )
    unpack(pieces(evil), str(target), out.__setitem__)
    assert "out" in out
    for parent, directories, files in os.walk(target):
        for name in (*directories, *files):
            assert Path(parent, name).resolve().is_relative_to(target)
    assert (target / "later/x/y").resolve() == target / "a/b"


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot unpack"):
        unpack(pieces(b"x" * 2000), str(tmp_path))
    whole = archive((member("file"), bytes(5000)))
    with pytest.raises(InvalidRequest, match="cannot unpack"):
        unpack(pieces(whole[:2000]), str(tmp_path))


def test_what_cannot_be_read_is_no_silent_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shut").mkdir()
    scandir = os.scandir

    def refusing(path: str) -> object:
        if path.endswith("shut"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    # Root reads everything, so that it is os.walk's own call that has to fail.
    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(PermissionError):
        list(pack(str(tmp_path)))


@pytest.mark.parametrize("mtime", ["nan", "inf", "-5", "1e300"])
def test_times_that_are_none_are_the_beginning(tmp_path: Path, mtime: str) -> None:
    info = member("f")
    info.pax_headers = {"mtime": mtime}
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as made:
        made.addfile(info, io.BytesIO())
    unpack(pieces(target.getvalue()), str(tmp_path))
    assert (tmp_path / "f").stat().st_mtime == 0
