# SPDX-License-Identifier: Apache-2.0
"""`python3 -m tests.machine`."""

import sys

from .cli import main

sys.exit(main())
