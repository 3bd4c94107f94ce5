# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path

import bootstrap

from tests.machine import recipe

TESTS = Path(__file__).parents[2]


def test_a_machine_has_the_programs_that_its_tests_ask_for() -> None:
    asked = {
        name
        for folder in ("contract", "system")
        for path in (TESTS / folder).glob("*.py")
        for name in re.findall(r'requires_program\("([^"]+)"\)', path.read_text())
    }
    packages = {bootstrap.TEST_PROGRAMS[name] for name in asked}
    assert packages
    for name, suite in recipe.SUITES.items():
        assert packages <= set(suite.packages), name
