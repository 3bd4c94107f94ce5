# SPDX-License-Identifier: Apache-2.0
"""Start the spawner by path: `python3 -I -S .../spawner/__main__.py SOCKET [IDLE_SECONDS]`.

-S leaves site-packages out, so the package's parent directory is added, behind the library.
"""

import sys

sys.path.append(__file__.rsplit("/", 3)[0])

from sandboxd.spawner.spawner import main

main(sys.argv[1:])
