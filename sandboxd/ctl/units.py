# SPDX-License-Identifier: Apache-2.0
"""The systemd units of the service, from the templates in units/: python3 -m sandboxd.ctl.units.

Used at a package's build (--prefix), and by `sandboxctl render-units` on a host without the
package. The state and runtime directories are fixed: they tell the service from other daemons of a
host.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jinja2

from sandboxd.errors import ConfigError

DEFAULT_CONFIG = "/etc/sandboxd/sandboxd.toml"
DEFAULT_GROUP = "sandboxd"
# Beside this file if installed (pyproject.toml), above in a checkout.
_PLACES = ("unit_templates", "../units")
_SUFFIX = ".j2"
# Paths that need no quoting in a unit file (systemd.syntax(7)): no blank, quote, %, $ or backslash.
_PATH = re.compile(r"(/[A-Za-z0-9_@+:.,~=-]+)+", re.ASCII)
_GROUP = re.compile(r"[a-z_][a-z0-9_-]{0,30}", re.ASCII)
# MemoryMin: services claim within the slice's, which is the sum of all and the default worker
# reserve.
_MEMORY = {
    "daemon_memory": "192M",
    # Several times the memory that a few hostile callers can take within the API's bounds.
    "daemon_memory_high": "768M",
    "daemon_memory_max": "1G",
    "spawner_memory": "32M",
    "supervisor_memory": "32M",
    "slice_memory": "256M",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths on the host that the units are for.

    daemon: the command line that starts sandboxd. python: the interpreter for the helpers. library:
    the parent directory of the package `sandboxd`.
    """

    daemon: tuple[str, ...]
    python: str
    library: str
    config: str = DEFAULT_CONFIG
    group: str = DEFAULT_GROUP


def render(layout: Layout) -> Mapping[str, str]:
    """Return each file for systemd, by name. Raises ConfigError for values that need quoting."""
    for path in (layout.daemon[0], layout.python, layout.library, layout.config):
        if not _PATH.fullmatch(path) or os.path.normpath(path) != path:
            raise ConfigError(
                f"cannot write units for {path!r}: it must be an absolute path of letters, "
                "digits and _@+:.,~=-"
            )
    if not _GROUP.fullmatch(layout.group):
        raise ConfigError(f"cannot write units for the group {layout.group!r}: bad name")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_templates()),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - unit files are no HTML; what goes in was checked above
    )
    values = {
        "daemon": " ".join(layout.daemon),
        "python": layout.python,
        "library": layout.library,
        "config": layout.config,
        "default_config": DEFAULT_CONFIG,
        "group": layout.group,
        **_MEMORY,
    }
    names = environment.list_templates(extensions=[_SUFFIX[1:]])
    return {
        name.removesuffix(_SUFFIX): environment.get_template(name).render(values) for name in names
    }


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the paths."""
    parser.add_argument("--output", metavar="DIR", help="write files there, else to stdout")
    parser.add_argument(
        "--prefix", metavar="DIR",
        help="for a Debian package's places below it: bin/sandboxd, bin/python3, "
        "lib/python3/dist-packages (default: as sandboxd runs here)",
    )  # fmt: skip
    parser.add_argument("--daemon", metavar="PATH", help="the program that starts sandboxd")
    parser.add_argument("--python", metavar="PATH", help="the interpreter of the helpers")
    parser.add_argument("--library", metavar="DIR", help="what the package sandboxd is in")
    parser.add_argument(
        "--config", metavar="FILE", default=DEFAULT_CONFIG, help="settings (default %(default)s)"
    )
    parser.add_argument(
        "--group", default=DEFAULT_GROUP,
        help="whose members may use the socket (default %(default)s)",
    )  # fmt: skip


def execute(arguments: argparse.Namespace) -> int:
    """Write the requested files; return the exit code. Raises ConfigError, OSError."""
    files = render(_layout(arguments))
    if arguments.output is None:
        sys.stdout.write("\n".join(f"# {name}\n{text}" for name, text in files.items()))
        return 0
    directory = Path(arguments.output)
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{directory / name}\n")
    return 0


def _layout(arguments: argparse.Namespace) -> Layout:
    if arguments.prefix is not None:
        prefix = arguments.prefix.rstrip("/")
        python = arguments.python or f"{prefix}/bin/python3"
        library = arguments.library or f"{prefix}/lib/python3/dist-packages"
        daemon = [f"{prefix}/bin/sandboxd"]
    else:
        python = arguments.python or sys.executable
        library = arguments.library or str(Path(__file__).resolve().parents[2])
        program = f"{library}/sandboxd/__main__.py"
        daemon = [python, "-I", program]
    if arguments.daemon is not None:
        daemon = [arguments.daemon]
    return Layout(tuple(daemon), python, library, config=arguments.config, group=arguments.group)


def _templates() -> Path:
    here = Path(__file__).resolve().parents[1]
    for place in _PLACES:
        found = (here / place).resolve()
        if found.is_dir():
            return found
    raise ConfigError(f"cannot find the unit templates: neither of {_PLACES} is in {here}")


def main() -> int:
    """Entry point of python3 -m sandboxd.ctl.units."""
    parser = argparse.ArgumentParser(prog="python3 -m sandboxd.ctl.units", description=__doc__)
    configure(parser)
    try:
        return execute(parser.parse_args())
    except (ConfigError, OSError) as exc:
        parser.exit(1, f"{exc}\n")


if __name__ == "__main__":
    sys.exit(main())
