# SPDX-License-Identifier: Apache-2.0
"""A manager whose cgroups are plain files; it does what systemd does, or fails on order."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandboxd.errors import SandboxdError, UnitExists, UnitMissing
from sandboxd.systemd.jobs import UnitStatus
from sandboxd.systemd.properties import Features, Property
from sandboxd.systemd.units import slice_path

DEVICE = "254:0"
UNLIMITED = {"memory.max": "max", "memory.swap.max": "max", "pids.max": "max",
             "cpu.max": "max 100000", "cpu.weight": "100", "io.max": ""}  # fmt: skip


class FakeManager:
    """`log` has every change in order, `given` what each unit was started with. `fail` maps
    (verb, unit) to the errors of its next calls (None: it succeeds); `ignore` names properties that
    are accepted and not applied."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.units: dict[str, str] = {}
        self.given: dict[str, dict[str, Any]] = {}
        self.log: list[tuple[str, str]] = []
        self.fail: dict[tuple[str, str], list[SandboxdError | None]] = {}
        self.ignore: set[str] = set()
        self.version_number = 257

    async def version(self) -> int:
        return self.version_number

    async def features(self) -> Features:
        return Features.of_version(self.version_number)

    async def control_group(self) -> str:
        return ""

    async def start_transient(
        self, unit: str, properties: Sequence[Property], *, fds: Sequence[int] = ()
    ) -> None:
        values = {name: value for name, _, value in properties}
        if unit in self.units:
            raise UnitExists(unit, "org.freedesktop.systemd1.UnitExists", "already there")
        parent = str(values.get("Slice", ""))
        path = f"{slice_path(parent)}/{unit}" if parent else slice_path(unit)
        self._note("start", unit)
        for above in reversed([Path(path), *Path(path).parents[:-1]]):
            if not (self._root / above).exists():
                self._make(above)
        self._apply(unit, values)
        self.given[unit] = values
        self.units[unit] = str(values.get("Description", ""))

    async def start_unit(self, unit: str) -> None:
        if unit not in self.units:
            raise UnitMissing(unit)
        self._note("start", unit)
        if not self.directory(unit).exists():
            self._make(Path(slice_path(unit)))

    async def set_properties(self, unit: str, properties: Sequence[Property]) -> None:
        self._note("set", unit)
        self._apply(unit, {name: value for name, _, value in properties})

    async def stop_unit(self, unit: str) -> None:
        if unit not in self.units:
            return
        self._note("stop", unit)
        directory = self.directory(unit)
        for below in [unit, *(path.name for path in directory.rglob("*") if path.is_dir())]:
            self.units.pop(below, None)
        shutil.rmtree(directory)

    async def kill_unit(self, unit: str) -> None:
        if unit not in self.units:
            raise UnitMissing(unit)
        self._note("kill", unit)

    async def status(self, unit: str) -> UnitStatus:
        if unit not in self.units:
            return UnitStatus(unit, "", "not-found", "inactive", "dead", "/")
        return UnitStatus(unit, self.units[unit], "loaded", "active", "active", "/")

    async def list_units(self, patterns: Sequence[str]) -> list[UnitStatus]:
        return [await self.status(unit) for unit in self.units if Path(unit).match(patterns[0])]

    def directory(self, unit: str) -> Path:
        if unit.endswith(".slice"):
            return self._root / slice_path(unit)
        return next(self._root.rglob(unit))

    def text(self, unit: str, name: str) -> str:
        return (self.directory(unit) / name).read_text()

    def _note(self, verb: str, unit: str) -> None:
        errors = self.fail.get((verb, unit))
        error = errors.pop(0) if errors else None
        if error is not None:
            raise error
        self.log.append((verb, unit))

    def _make(self, path: Path) -> None:
        directory = self._root / path
        directory.mkdir()
        for name, text in UNLIMITED.items():
            (directory / name).write_text(text)
        self.units.setdefault(path.name, f"Slice {path.name}")

    def _apply(self, unit: str, values: dict[str, Any]) -> None:
        directory = self.directory(unit)
        io = {"rbps": values.get("IOReadBandwidthMax"), "wbps": values.get("IOWriteBandwidthMax")}
        tasks = values.get("TasksMax")
        files = {
            "MemoryMax": ("memory.max", str(values.get("MemoryMax"))),
            "MemorySwapMax": ("memory.swap.max", str(values.get("MemorySwapMax"))),
            "TasksMax": ("pids.max", "max" if tasks == (1 << 64) - 1 else str(tasks)),
            "CPUWeight": ("cpu.weight", str(values.get("CPUWeight"))),
            "CPUQuotaPerSecUSec": (
                "cpu.max", f"{values.get('CPUQuotaPerSecUSec', 0) // 10} 100000"
            ),
        }  # fmt: skip
        for name, (file, text) in files.items():
            if name in values and name not in self.ignore:
                (directory / file).write_text(text)
        if any(io.values()) and "IO" not in self.ignore:
            pairs = " ".join(f"{key}={value[0][1]}" for key, value in io.items() if value)
            (directory / "io.max").write_text(f"{DEVICE} {pairs}\n")
