# SPDX-License-Identifier: Apache-2.0
"""What a builder says where the host lacks something."""

from __future__ import annotations

import pytest

from sandboxd.isolation import bubblewrap, build


def test_a_host_without_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "PROGRAMS", ("/nonexistent/bwrap",))
    with pytest.raises(build.NoBubblewrap, match="not installed"), build._held_root({}, None):
        raise AssertionError("there is none")
