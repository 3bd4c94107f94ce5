# SPDX-License-Identifier: Apache-2.0
"""`./dev bench`: what sandboxd costs beside what people would use instead.

Compare ratios, never times: every ratio is of ways that were tried in turns in one run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from tests.contract.probes import has_unified_systemd
from tests.harness import running_daemon

from . import cases, report

MODES = {"systemd": "required", "bare": "off"}


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, or 1 where --check finds a ratio worse than the kept one."""
    options = _options(arguments)
    plan = cases.FULL if options.full else cases.QUICK
    place = "systemd" if has_unified_systemd() else "bare"
    figures = {}
    settings = {"SANDBOX_CGROUP_MODE": MODES[place], "SANDBOX_MEMORY_LIMIT_BYTES": "64M"}
    before = report.host()
    with tempfile.TemporaryDirectory(prefix="figures-") as scratch:
        for name in options.only or cases.CASES:
            print(f"bench: {name}", file=sys.stderr, flush=True)
            # A daemon of its own: one case's records are no load of the next.
            with running_daemon(**settings) as daemon:
                figures[name] = cases.CASES[name](daemon, plan, Path(scratch))
    print(report.table(figures))
    if options.json:
        whole = {"place": place, "host": before, "figures": figures}
        options.json.write_text(json.dumps(whole, indent=1) + "\n")
    if options.keep:
        report.keep(place, figures)
    found = report.worse(place, figures) if options.check else []
    for line in found:
        print(f"bench: worse: {line}", file=sys.stderr)
    return 1 if found else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__)
    parser.add_argument("--full", action="store_true", help="more rounds, more sandboxes")
    parser.add_argument(
        "--only", action="append", choices=list(cases.CASES), help="this case; may be given again"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument(
        "--check", action="store_true", help="fail where a ratio is worse than the kept one"
    )
    parser.add_argument("--keep", action="store_true", help="keep these ratios for --check")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
