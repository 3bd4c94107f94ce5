# SPDX-License-Identifier: Apache-2.0
"""Files with a label and a value on each line."""

from __future__ import annotations

from pathlib import Path

from sandboxd.osutil.labels import parse_numbers, read_label, read_labels

TEXT = b"Name:\ta: \xffb\nUmask:\t0022\nVmHWM:\t    1234 kB\nGroups:\t\nno label\n"


def test_values_by_label(tmp_path: Path) -> None:
    (tmp_path / "status").write_bytes(TEXT)
    found = read_labels(str(tmp_path / "status"))
    assert found == {"Name": "a: \ufffdb", "Umask": "0022", "VmHWM": "1234 kB", "Groups": ""}


def test_one_value(tmp_path: Path) -> None:
    (tmp_path / "status").write_bytes(TEXT)
    assert read_label(str(tmp_path / "status"), "Umask") == "0022"
    assert read_label(str(tmp_path / "status"), "Groups") == ""
    assert read_label(str(tmp_path / "status"), "Uma") is None


def test_numbers_have_units_or_none() -> None:
    assert parse_numbers(TEXT) == {b"Umask": 22, b"VmHWM": 1234}
