# SPDX-License-Identifier: Apache-2.0
"""Write man pages and completion: PYTHONPATH=.:packaging python3 -m reference DIRECTORY."""

from __future__ import annotations

import sys
from pathlib import Path

from reference import completion, man, manual
from reference.describe import describe


def files() -> dict[str, str]:
    """Return the text of each file, by the path below /usr/share."""
    commands = describe()
    return {
        **{f"man/man1/{name}": text for name, text in man.pages(commands).items()},
        **manual.pages(),
        "bash-completion/completions/sandboxctl": completion.bash(commands),
        "zsh/vendor-completions/_sandboxctl": completion.zsh(commands),
        "fish/vendor_completions.d/sandboxctl.fish": completion.fish(commands),
    }


def main() -> int:
    """Write all files; return the exit code."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    for name, text in files().items():
        path = Path(sys.argv[1], name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
