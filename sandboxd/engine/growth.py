# SPDX-License-Identifier: Apache-2.0
"""Chooses the output to remove from a filling disk, by growth since the last time with room. Pure.

A disk fills with files, with the host's own data and with output; only output can be removed here.
So an owner answers for the owner's added output alone: results from before the shortage stay,
whatever fills the disk later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_MOST_ALLOWED_BYTES = 64 << 20
_ALLOWED_SHARE = 4
# Above half of the floor in all: many owners within their share must not fill the disk.
_LITTLE_SHARE = 16


@dataclass(frozen=True, slots=True)
class Output:
    """The present output of an execution. is_open: more may come."""

    execution_id: str
    owner_uid: int
    size_bytes: int
    is_open: bool


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of output at a moment, per execution and summed per owner."""

    of_execution: dict[str, int] = field(default_factory=dict)
    of_owner: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, outputs: Sequence[Output]) -> Sizes:
        """Return the sizes of `outputs`."""
        sums: dict[int, int] = defaultdict(int)
        for output in outputs:
            sums[output.owner_uid] += output.size_bytes
        return cls({output.execution_id: output.size_bytes for output in outputs}, dict(sums))

    def growth(self, output: Output) -> int:
        """Return the bytes that an execution has printed since."""
        return output.size_bytes - self.of_execution.get(output.execution_id, 0)


def allowed_bytes(floor_bytes: int, grown_bytes: int) -> int:
    """Return the growth allowed to every owner during a shortage.

    floor_bytes: free space to keep. grown_bytes: growth of all owners together; above half of the
    floor every owner may keep a sixteenth alone.
    """
    allowed = min(_MOST_ALLOWED_BYTES, floor_bytes // _ALLOWED_SHARE)
    return allowed if grown_bytes <= floor_bytes // 2 else allowed // _LITTLE_SHARE


def liable(
    outputs: Sequence[Output], before: Sizes, lacking: int, allowed: Callable[[int], int]
) -> tuple[list[Output], int]:
    """Return the output to end (open) or remove (complete), and the bytes still lacking.

    before: sizes at the last time with room. lacking: bytes to gain. allowed: growth of an owner
    that stays, of the growth of all owners. Chooses repeatedly the largest growth of the owner with
    the largest growth. An owner loses no more bytes of results than the growth: a larger result
    stays.
    """
    grown: dict[int, list[Output]] = defaultdict(list)
    for output in outputs:
        if before.growth(output) > 0:
            grown[output.owner_uid].append(output)
    now = Sizes.of(outputs).of_owner
    added: dict[int, int] = {}
    # Removed results offset new results.
    net = {uid: now[uid] - before.of_owner.get(uid, 0) for uid in grown}
    for uid, those in grown.items():
        those.sort(key=lambda output: (before.growth(output), output.execution_id))
        added[uid] = sum(map(before.growth, those))
    chosen: list[Output] = []
    while lacking > 0 and added:
        growths = {one: max(0, min(added[one], net[one])) for one in added}
        uid = max(growths, key=lambda one: (growths[one], one))
        if growths[uid] <= allowed(sum(growths.values())):
            break
        output = grown[uid].pop()
        growth = before.growth(output)
        added[uid] -= growth
        taken = growth if output.is_open else output.size_bytes
        if taken <= net[uid]:
            net[uid] -= taken
            lacking -= taken
            chosen.append(output)
    return chosen, max(0, lacking)
