# SPDX-License-Identifier: Apache-2.0
"""`python3 -m tests.machine`."""

import signal
import sys
from types import FrameType
from typing import NoReturn

from .cli import main


def terminate(number: int, frame: FrameType | None) -> NoReturn:
    """End by an exception, so that a machine of one run is stopped and its disk removed."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, terminate)
    sys.exit(main())
