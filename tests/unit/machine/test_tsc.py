# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import re

import pytest

from tests.conftest import unmet
from tests.machine import tsc


def test_two_measurements_agree() -> None:
    if os.uname().machine != "x86_64":
        unmet("a counter of x86")
    one, other = tsc.kilohertz(), tsc.kilohertz()
    assert one == pytest.approx(other, rel=0.001)
    assert 100_000 < one < 20_000_000
    (argument,) = tsc.kernel_arguments()
    assert re.fullmatch(r"tsc_early_khz=\d+", argument)


def test_other_processors_have_another_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    uname = os.uname_result(("Linux", "host", "6.12", "#1", "aarch64"))
    monkeypatch.setattr(os, "uname", lambda: uname)
    assert tsc.kernel_arguments() == ()
