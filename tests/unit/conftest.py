# SPDX-License-Identifier: Apache-2.0
"""Hypothesis for unit tests: the same examples each run in CI, and no deadline on a shared CPU."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("developer", deadline=None)
settings.register_profile("strict", deadline=None, derandomize=True, print_blob=True)
is_strict = os.environ.get("SANDBOXD_TEST_STRICT", "") not in {"", "0"}
settings.load_profile("strict" if is_strict else "developer")
