# SPDX-License-Identifier: Apache-2.0
"""Start the supervisor by path: `python3 -I -S .../supervisor/__main__.py RUNTIME_DIR`.

-S leaves site-packages out, so the package's parent directory is added, behind the library.
"""

import sys

sys.path.append(__file__.rsplit("/", 3)[0])

from sandboxd.supervisor.server import main

main(sys.argv[1])
