# SPDX-License-Identifier: Apache-2.0
"""Which records go first, and what they take. Pure.

A bound is on all records together, but what is above it is taken from the owner that has most: so
nobody's results go because somebody else makes many, or large ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

from sandboxd.core.model import Command, Sandbox
from sandboxd.engine.requests import SandboxRequest

T = TypeVar("T")
# Many short strings take more than their characters.
_FEW_STRINGS = 64
_STRING_BYTES = 64


def excess(
    entries: Iterable[T],
    bound: int,
    *,
    owner: Callable[[T], int],
    size: Callable[[T], int],
    since: Callable[[T], float],
) -> list[T]:
    """Those to give up for the sum of sizes to be within the bound: always of the owner with the
    largest sum, its largest entry, of equal ones that which is there since longest ago."""
    of_owner: dict[int, list[T]] = defaultdict(list)
    sums: dict[int, int] = defaultdict(int)
    for entry in entries:
        of_owner[owner(entry)].append(entry)
        sums[owner(entry)] += size(entry)
    over = sum(sums.values()) - bound
    if over <= 0:
        return []
    for those in of_owner.values():
        those.sort(key=lambda entry: (size(entry), -since(entry)))
    given_up = []
    while over > 0:
        uid = max(sums, key=lambda one: (sums[one], one))
        entry = of_owner[uid].pop()
        sums[uid] -= size(entry)
        over -= size(entry)
        given_up.append(entry)
    return given_up


def sandbox_bytes(sandbox: Sandbox | SandboxRequest) -> int:
    """What a caller makes a sandbox's record hold in memory."""
    pairs = (*sandbox.env.items(), *sandbox.metadata.items())
    return _text_bytes([text for pair in pairs for text in pair])


def argument_bytes(command: Command) -> int:
    """The same of an execution's record, while it runs with its environment."""
    env = [text for pair in command.env.items() for text in pair]
    return _text_bytes([*command.argv, command.cwd or "", *env])


def _text_bytes(texts: list[str]) -> int:
    return sum(map(len, texts)) + _STRING_BYTES * max(0, len(texts) - _FEW_STRINGS)
