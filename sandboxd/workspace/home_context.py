# SPDX-License-Identifier: Apache-2.0
"""The context of work on a sandbox's files: paths, uid, workers."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from sandboxd.core.entries import join, shown
from sandboxd.core.turns import Turn
from sandboxd.errors import AccessDenied, InvalidRequest
from sandboxd.workspace.workers import Workers

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spot:
    """A path below the directory `top`. asked: as the caller spells the path, for messages."""

    top: str
    path: bytes
    asked: bytes

    def below(self, path: bytes) -> Spot:
        """Return the spot of `path` below this spot; b"" = this spot."""
        return Spot(self.top, join(self.path, path), join(self.asked, path)) if path else self

    def check_has_name(self) -> None:
        """Raise InvalidRequest for a top directory such as the home: no call replaces a top."""
        if not self.path:
            what = shown(self.asked) if self.asked else "the home"
            raise InvalidRequest.field("path", f"names {what} itself")


@dataclass(frozen=True, slots=True)
class HomeContext:
    """The paths, uid and workers for a sandbox's files.

    staging: a directory of root's on the home's file system, out of the program's reach. remove:
    removes a tree in `staging` and returns once the tree is gone. take: called before so many bytes
    are written; raises DiskQuotaExceeded. turn: in whose turn work is done. inside: absolute paths
    of the sandbox's directories, as programs inside see them -> path on the host.
    """

    home: str
    staging: str
    uid: int
    workers: Workers
    remove: Callable[[str], Awaitable[None]]
    take: Callable[[int], Awaitable[None]]
    turn: Turn
    inside: Mapping[bytes, str] = field(default_factory=dict)

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work` as the sandbox's uid in a thread; see Workers.run."""
        return await self.workers.run(self.turn, self.uid, work, *args, **kwargs)

    async def run_steps(self, steps: Generator[None, None, T]) -> T:
        """Run possibly long work step by step; see Workers.run_steps."""
        return await self.workers.run_steps(self.turn, self.uid, steps)

    def locate(self, asked: bytes) -> Spot:
        """Return the spot of a clean path. Raises AccessDenied for one outside `inside`."""
        if not asked.startswith(b"/"):
            return Spot(self.home, asked, asked)
        for prefix in sorted(self.inside, key=len, reverse=True):
            if asked == prefix or asked.startswith(prefix + b"/"):
                return Spot(self.inside[prefix], asked[len(prefix) + 1 :], asked)
        own = " or ".join(os.fsdecode(prefix) for prefix in self.inside)
        raise AccessDenied(
            f"cannot use {shown(asked)}: it is not the sandbox's own",
            hint=f"paths are relative to the home, or below {own}; what else a command sees, a "
            "command can read",
        )
