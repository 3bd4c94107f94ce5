# SPDX-License-Identifier: Apache-2.0
"""sandboxctl doctor."""

from __future__ import annotations

import argparse

from sandboxd.client.calls import JsonObject
from sandboxd.core.limits import is_neutral
from sandboxd.core.quantity import format_bytes
from sandboxd.ctl import draining, exits
from sandboxd.ctl.connect import connect_or_start
from sandboxd.ctl.interrupts import Interrupts
from sandboxd.ctl.limits import add_output_format
from sandboxd.ctl.show import Part, print_json, print_parts, printable
from sandboxd.ctl.verdict import enforcement

_KERNEL_LIMITS = "limits held by the kernel"
_NO_REMEDY = "this limit is not held even with systemd here: see how it says why"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_output_format(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Print how this host enforces limits; return 0 if all are enforced, else 1."""
    is_json = arguments.output == "json"
    with (
        Interrupts() as interrupts,
        connect_or_start(arguments, interrupts, quiet=is_json) as client,
    ):
        host = client.host()
    if is_json:
        print_json(host)
    else:
        print_parts(report(host))
    return exits.NOT_ALL_ENFORCED if unenforced(host) else 0


def unenforced(host: JsonObject) -> list[str]:
    """Return the names of the limits that are not enforced here, though a holder is needed."""
    values = host["limits"]
    return [name for name in _unheld(host) if not is_neutral(name, values.get(name))]


def _unheld(host: JsonObject) -> list[str]:
    return [name for name, held in host["enforcement"].items() if held["by"] == "none"]


def _remedy(host: JsonObject) -> str:
    """Return how to have the kernel enforce limits here; the daemon knows its environment."""
    lacks = host["isolation"]["levels"]["strict"]["lacks"]
    ways = [lack["remedy"] for lack in lacks if lack["what"].startswith(_KERNEL_LIMITS)]
    return printable(ways[0]) if ways else _NO_REMEDY


def isolation(found: JsonObject) -> list[str]:
    """Return isolation levels and networks, with the lacks of each and the remedy."""
    lines = []
    for kind, default, title in (
        ("levels", found["default_level"], "isolation levels:"),
        ("networks", found["default_network"], "networks:"),
    ):
        lines.append(title)
        for name, offer in found[kind].items():
            state = "available" if offer["available"] else "not available"
            mark = ", the default" if name == default else ""
            lines.append(f"  {name}: {state}{mark} ({printable(offer['detail'])})")
            if offer["barred_by"] is not None:
                lines.append(f"    not allowed: {printable(offer['barred_by'])}")
            for lack in offer["lacks"]:
                lines.append(f"    lacks: {printable(lack['what'])}")
                lines.append(f"      remedy: {printable(lack['remedy'])}")
    return lines


def _readiness(host: JsonObject) -> str:
    return draining.words(host) or ("ready" if host["ready"] else "not ready")


def report(host: JsonObject) -> list[Part]:
    """Return all lines and tables."""
    cgroup, capacity = host["cgroup"], host["capacity"]
    lines: list[Part] = [
        f"sandboxd {host['version']}, {_readiness(host)}",
        f"scheme: {host['scheme']} ({printable(host['reason'])})",
        f"cgroups: {cgroup['version']}, mode {cgroup['mode']} ({printable(cgroup['detail'])})",
        f"memory for sandboxes: {format_bytes(capacity['budget_bytes'])}, "
        f"{format_bytes(capacity['committed_bytes'])} of it promised; "
        f"{capacity['slots']} more with the default limit fit",
        f"processes and threads for sandboxes: {capacity['tasks']} together, "
        f"half of them for one ({printable(capacity['tasks_source'])})",
        "",
        enforcement(host["limits"], host["enforcement"]),
        "",
        *isolation(host["isolation"]),
    ]
    missing = [printable(text) for text in host["missing"]]
    weak = unenforced(host)
    if weak:
        missing.append(f"nothing holds {', '.join(weak)}: {_remedy(host)}")
    if missing:
        lines += ["", "missing:", *(f"  {text}" for text in missing)]
    return [*lines, "", _verdict(host)]


def _verdict(host: JsonObject) -> str:
    if unenforced(host):
        return "not all limits are enforced here"
    neutral = [f"{name} {host['limits'][name]}" for name in _unheld(host)]
    reason = f" ({', '.join(neutral)}, the kernel's default, needs no holder)" if neutral else ""
    return f"all limits are enforced{reason}"
