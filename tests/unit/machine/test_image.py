# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.machine import image

LZ4 = b"\x02\x21\x4c\x18"
ZSTD = b"\x28\xb5\x2f\xfd"


def boot_image(payload: bytes) -> bytes:
    """A bzImage: two sectors of set-up, then code, then the payload and its unpacked size."""
    code = b"code"
    data = bytearray(2 * 512) + code + payload + struct.pack("<I", 1 << 20)
    data[0x1F1] = 1
    struct.pack_into("<II", data, 0x248, len(code), len(payload) + 4)
    return bytes(data)


@pytest.mark.parametrize(("magic", "program"), [(LZ4, "lz4"), (ZSTD, "zstd")])
def test_a_kernel_is_unpacked_by_what_packed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, magic: bytes, program: str
) -> None:
    ran: list[tuple[str, bytes]] = []

    def run(command: list[str], log: int) -> None:
        packed = next(word for word in command if word.endswith(".packed"))
        ran.append((command[0], Path(packed).read_bytes()))
        assert command[-1] == str(tmp_path / "kernel")

    monkeypatch.setattr(image, "run", run)
    (tmp_path / "vmlinuz").write_bytes(boot_image(magic + b"stream"))
    image._extract_kernel(tmp_path / "vmlinuz", tmp_path / "kernel", 2)
    assert ran == [(program, magic + b"stream")]
    assert [path.name for path in tmp_path.iterdir()] == ["vmlinuz"]
