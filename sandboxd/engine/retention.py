# SPDX-License-Identifier: Apache-2.0
"""Chooses the records to remove and computes the memory of records. Pure.

A bound applies to all records together; the excess is taken from the owner with the most, so that
no owner loses results because of the number or size of another owner's results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

from sandboxd.core.model import Command, Sandbox
from sandboxd.engine.requests import SandboxRequest

T = TypeVar("T")
# A string object takes more memory than the characters.
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
    """Return the entries above the bound: of the owner with most, largest and oldest first."""
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
    """Return the memory of a sandbox's record that the caller determines, in bytes."""
    pairs = (*sandbox.env.items(), *sandbox.metadata.items())
    return _text_bytes([text for pair in pairs for text in pair])


def argument_bytes(command: Command) -> int:
    """Return the memory of an execution's record, environment included, in bytes."""
    env = [text for pair in command.env.items() for text in pair]
    return _text_bytes([*command.argv, command.cwd or "", *env])


def _text_bytes(texts: list[str]) -> int:
    return sum(map(len, texts)) + _STRING_BYTES * max(0, len(texts) - _FEW_STRINGS)
