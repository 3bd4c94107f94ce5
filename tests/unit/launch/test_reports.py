# SPDX-License-Identifier: Apache-2.0
"""A record that does not say what it must is no record."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.launch.reports import read_facts
from sandboxd.protocol.records import RECORD_FILE


@pytest.mark.parametrize("text", ["{}", '{"reason": "exited"}', '{"streams": 3}'])
def test_an_incomplete_record_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / RECORD_FILE).write_text(text)
    assert read_facts(str(tmp_path)) is None


def test_no_record_is_none(tmp_path: Path) -> None:
    assert read_facts(str(tmp_path)) is None
