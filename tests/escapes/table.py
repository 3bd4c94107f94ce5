# SPDX-License-Identifier: Apache-2.0
"""All attempts."""

from __future__ import annotations

from tests.escapes.files import FILES
from tests.escapes.kernel import KERNEL, STRICT_ONLY
from tests.escapes.network import NETWORK
from tests.escapes.processes import PROCESSES

__all__ = ["ATTEMPTS", "ESCAPES", "STRICT_ONLY"]

ESCAPES = (*FILES, *PROCESSES, *KERNEL, *NETWORK)
ATTEMPTS = (*ESCAPES, *STRICT_ONLY)
