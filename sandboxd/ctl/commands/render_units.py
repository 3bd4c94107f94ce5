# SPDX-License-Identifier: Apache-2.0
"""sandboxctl render-units."""

from __future__ import annotations

from sandboxd.ctl.units import configure, execute

__all__ = ["configure", "execute"]
