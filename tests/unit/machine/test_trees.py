# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.machine.trees import ChunkReader, ChunkWriter, pack, unpack


def send(source: Path, target: Path, names: list[str] | None = None) -> dict[str, int]:
    chunks: list[bytes] = []
    writer = ChunkWriter(chunks.append, 1000)
    pack(writer, source, names)
    writer.flush()
    assert all(len(chunk) <= 1000 for chunk in chunks)
    pieces = iter([*chunks, b""])
    return unpack(ChunkReader(lambda: next(pieces)), target)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    tree = tmp_path / "source"
    (tree / "package").mkdir(parents=True)
    (tree / "package/module.py").write_text("a = 1\n" * 1000)
    (tree / "run").write_text("#!/bin/sh\n")
    (tree / "run").chmod(0o700)
    (tree / "link").symlink_to("package/module.py")
    return tree


def test_content_modes_and_links_arrive(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    send(source, target)
    assert (target / "package/module.py").read_bytes() == b"a = 1\n" * 1000
    assert (target / "package/module.py").stat().st_mode & 0o777 == 0o644
    assert (target / "run").stat().st_mode & 0o777 == 0o755
    assert os.readlink(target / "link") == "package/module.py"


def test_only_the_named_files_are_sent(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    send(source, target, ["package/module.py"])
    assert [path.name for path in target.rglob("*") if path.is_file()] == ["module.py"]


def test_a_second_time_touches_only_what_changed(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    send(source, target)
    os.utime(target / "package/module.py", (1, 1))
    (source / "run").write_text("#!/bin/sh\nexit 1\n")
    assert send(source, target) == {"changed": 1, "removed": 0}
    assert (target / "package/module.py").stat().st_mtime == 1


def test_what_is_gone_is_removed_but_compiled_files(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    send(source, target)
    (target / "package/__pycache__").mkdir()
    (target / "package/__pycache__/module.pyc").touch()
    (target / "old").mkdir()
    (target / "old/file").touch()
    (source / "link").unlink()
    assert send(source, target) == {"changed": 0, "removed": 2}
    assert (target / "package/__pycache__/module.pyc").exists()
    assert not (target / "old").exists()
    assert not (target / "link").is_symlink()


def test_a_file_takes_the_place_of_a_directory_and_back(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    (target / "run/below").mkdir(parents=True)
    (target / "package").write_text("")
    send(source, target)
    assert (target / "run").is_file()
    assert (target / "package/module.py").is_file()
