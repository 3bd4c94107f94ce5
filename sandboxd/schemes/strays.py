# SPDX-License-Identifier: Apache-2.0
"""Scopes and slices that belong to nobody: what a lost answer or a failed removal left behind."""

from __future__ import annotations

from sandboxd.schemes.places import Place
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
        scopes = {unit: place for place, unit in self._find_scopes()}
        slices = self._slices.unknown()
        seen, self._seen = self._seen, {*scopes, *slices}
        cleared = []
        for unit, place in scopes.items():
            # Looked at once more, since the removals before it took their time.
            if unit in seen and unit not in place.scopes:
                await self._scopes.remove(place, unit)
                cleared.append(unit)
        for unit in slices:
            if unit in seen:
                cleared += await self._slices.discard(unit)
        return cleared

    def _find_scopes(self) -> list[tuple[Place, str]]:
        return [
            (place, unit) for place in self._slices.places() for unit in self._scopes.unknown(place)
        ]
