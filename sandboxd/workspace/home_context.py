# SPDX-License-Identifier: Apache-2.0
"""Where the files of one sandbox are, by which paths, and who works on them."""

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
    """One path in a sandbox: `path` below the directory `top`, which is the sandbox's own.

    asked: the path as the caller spells it, and as answers and messages do.
    """

    top: str
    path: bytes
    asked: bytes

    def below(self, path: bytes) -> Spot:
        """A path below this one; b"" = this one."""
        return Spot(self.top, join(self.path, path), join(self.asked, path)) if path else self

    def check_has_name(self) -> None:
        """Raise InvalidRequest for the home itself and its like: those are not to be replaced."""
        if not self.path:
            what = shown(self.asked) if self.asked else "the home"
            raise InvalidRequest.field("path", f"names {what} itself")


@dataclass(frozen=True, slots=True)
class HomeContext:
    """staging: a directory of root's on the home's file system, out of the program's reach.

    remove: removes a tree in `staging` and returns once it is gone. take: asked before so many
    bytes are written; raises DiskQuotaExceeded. turn: in whose turn work is done. inside: absolute
    paths of the sandbox's own directories, as its programs have them, and where each is.
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
        """Do what may be long; see Workers.run_steps."""
        return await self.workers.run_steps(self.turn, self.uid, steps)

    def locate(self, asked: bytes) -> Spot:
        """Where a clean path is. Raises AccessDenied for an absolute one of something else."""
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
