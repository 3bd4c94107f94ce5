# SPDX-License-Identifier: Apache-2.0
"""Scopes and slices that belong to nobody: what a lost answer or a failed removal left behind."""

from __future__ import annotations

from sandboxd.schemes.sandbox_slice import SandboxSlice
from sandboxd.schemes.scopes import Scopes
from sandboxd.schemes.slices import Slices


class Strays:
    """Finds them by their cgroups, which cost no call, and removes what two looks have found."""

    def __init__(self, slices: Slices, scopes: Scopes) -> None:
        self._slices = slices
        self._scopes = scopes
        self._seen: set[str] = set()

    async def clear(self) -> list[str]:
        """Remove those that the call before this one found as well; their names."""
        scopes = {unit: sandbox_slice for sandbox_slice, unit in self._find_scopes()}
        slices = self._slices.unknown()
        seen, self._seen = self._seen, {*scopes, *slices}
        cleared = []
        for unit, sandbox_slice in scopes.items():
            # Looked at once more, since the removals before it took their time.
            if unit in seen and unit not in sandbox_slice.scopes:
                await self._scopes.remove(sandbox_slice, unit)
                cleared.append(unit)
        for unit in slices:
            if unit in seen:
                cleared += await self._slices.discard(unit)
        return cleared

    def _find_scopes(self) -> list[tuple[SandboxSlice, str]]:
        return [
            (sandbox_slice, unit)
            for sandbox_slice in self._slices.all()
            for unit in self._scopes.unknown(sandbox_slice)
        ]
