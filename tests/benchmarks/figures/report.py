# SPDX-License-Identifier: Apache-2.0
"""Figures as a table, as JSON, and against those that are kept in the tree."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# Beside this file, by the place where they were taken: "bare" or "systemd".
KEPT = Path(__file__).with_name("kept.json")
# A ratio on a busy host moves that much; a regression worth a look moves more.
SLACK = 1.6


def host() -> dict[str, Any]:
    return {
        "kernel": platform.release(),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def leaves(figures: Mapping[str, Any], *prefix: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each figure with the names that lead to it."""
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from leaves(value, *prefix, name)
        else:
            yield (*prefix, name), value


def table(figures: Mapping[str, Any]) -> str:
    """One line a figure, grouped by case."""
    lines = []
    for case, found in figures.items():
        rows = [(", ".join(path), value) for path, value in leaves(found)]
        width = max((len(name) for name, _ in rows), default=0)
        lines += [case, *(f"  {name:{width}}  {value}" for name, value in rows), ""]
    return "\n".join(lines)


def kept_ratios(place: str) -> dict[str, float]:
    """The kept ratios of a place by the name of each."""
    kept: dict[str, dict[str, float]] = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return kept.get(place, {})


def found_ratios(figures: Mapping[str, Any]) -> dict[str, float]:
    """Every ratio by one name; those of which more is better are turned round."""
    found = {}
    for path, value in leaves(figures):
        if path[1] == "ratio":
            found[" / ".join((path[0], *path[2:]))] = float(value)
        elif path[1] == "ratio_more_is_better":
            found[" / ".join((path[0], *path[2:]))] = round(1 / float(value), 3)
    return found


def worse(place: str, figures: Mapping[str, Any]) -> list[str]:
    """Say which ratios are worse than the kept ones by more than `SLACK`."""
    found = found_ratios(figures)
    return [
        f"{name}: {found[name]} where {kept} is kept (bound {round(kept * SLACK, 3)})"
        for name, kept in kept_ratios(place).items()
        if name in found and found[name] > kept * SLACK
    ]


def keep(place: str, figures: Mapping[str, Any]) -> None:
    """Make these ratios the ones to compare with."""
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    kept[place] = found_ratios(figures)
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
