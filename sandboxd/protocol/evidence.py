# SPDX-License-Identifier: Apache-2.0
"""Files in which a supervisor reports an execution's verdict and usage to the shim.

The directory is the execution's own, below the runtime directory: a full or slow disk must delay
neither a verdict nor the supervisor's next look.

  verdict.json     why the supervisor ended the execution; written before the first kill
  supervised.json  the usage measured so far; written about once a second and when the shim asks
"""

from __future__ import annotations

import os

VERDICT_FILE = "verdict.json"
USAGE_FILE = "supervised.json"
SOCKET_NAME = "supervisor.sock"


def socket_path(runtime_directory: str) -> str:
    """Return the path of the supervisor's socket."""
    return os.path.join(runtime_directory, SOCKET_NAME)
