# SPDX-License-Identifier: Apache-2.0
"""Starts the daemon by its path, whatever the current directory: `python3 -I .../__main__.py`.

-I adds no directory of ours, so the package's parent is added, behind the library.
"""

import sys

sys.path.append(__file__.rsplit("/", 2)[0])

from sandboxd.daemon.main import main

main()
