# SPDX-License-Identifier: Apache-2.0
"""Whose output goes where a disk gets full: by what was added since there was room. Pure.

A disk fills with files, with the host's own data and with output, and output alone can be given up
here. So an owner answers for the output it added, and for no more: results that were there when
there was room stay, whatever fills the disk after that.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

_MOST_ALLOWED_BYTES = 64 << 20
_ALLOWED_SHARE = 4


@dataclass(frozen=True, slots=True)
class Output:
    """The output of one execution now. is_open: more may come."""

    execution_id: str
    owner_uid: int
    size_bytes: int
    is_open: bool


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of output at one time, of each execution and in sum of each owner."""

    of_execution: dict[str, int] = field(default_factory=dict)
    of_owner: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, outputs: Sequence[Output]) -> Sizes:
        """Those of `outputs`."""
        sums: dict[int, int] = defaultdict(int)
        for output in outputs:
            sums[output.owner_uid] += output.size_bytes
        return cls({output.execution_id: output.size_bytes for output in outputs}, dict(sums))

    def growth(self, output: Output) -> int:
        """What an execution has printed since."""
        return output.size_bytes - self.of_execution.get(output.execution_id, 0)


def allowed_bytes(floor_bytes: int) -> int:
    """What every owner may add while there is no room. floor_bytes: free space that is kept."""
    return min(_MOST_ALLOWED_BYTES, floor_bytes // _ALLOWED_SHARE)


def liable(
    outputs: Sequence[Output], before: Sizes, lacking: int, allowed: int
) -> tuple[list[Output], int]:
    """What is to be ended, where more may come, or given up; and how many bytes lack all the same.

    before: when there was room. lacking: bytes to be had. Each time of the owner that grew most,
    what grew most, until the owner's growth is no more than `allowed` bytes. Of results an owner
    loses no more bytes than it grew by: a larger one stays.
    """
    grown: dict[int, list[Output]] = defaultdict(list)
    for output in outputs:
        if before.growth(output) > 0:
            grown[output.owner_uid].append(output)
    now = Sizes.of(outputs).of_owner
    added: dict[int, int] = {}
    # Results that have gone since made room for new ones.
    net = {uid: now[uid] - before.of_owner.get(uid, 0) for uid in grown}
    for uid, those in grown.items():
        those.sort(key=lambda output: (before.growth(output), output.execution_id))
        added[uid] = sum(map(before.growth, those))
    chosen: list[Output] = []
    while lacking > 0 and added:
        uid = max(added, key=lambda one: (min(added[one], net[one]), one))
        if min(added[uid], net[uid]) <= allowed:
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
