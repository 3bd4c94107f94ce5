# SPDX-License-Identifier: Apache-2.0
"""One execution under supervision: its processes, usage, and end by verdict."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator
from contextlib import suppress

from sandboxd.osutil.processes import GONE
from sandboxd.protocol.dialogue import LiveUsage
from sandboxd.protocol.evidence import (
    USAGE,
    USAGE_FILE,
    VERDICT,
    VERDICT_FILE,
    MeasuredUsage,
    Verdict,
)
from sandboxd.protocol.supervision import Entry
from sandboxd.supervisor.files import Walker
from sandboxd.supervisor.group import Group
from sandboxd.supervisor.host import Abilities
from sandboxd.supervisor.memory import MemoryGauge
from sandboxd.supervisor.process import Process
from sandboxd.supervisor.shared import SharedFiles
from sandboxd.supervisor.throttle import Gains, Throttle

_WRITE_SECONDS = 1.0
_SHIM_SECONDS = 0.25


class Execution(Group):
    """A group with a shim, limits of its own and a record directory."""

    def __init__(self, entry: Entry, abilities: Abilities, now: float) -> None:
        super().__init__(reads_io=abilities.reads_io, measures_exactly=abilities.measures_exactly)
        self.entry = entry
        self.began = now
        self.verdict: Verdict | None = None
        self.stopped = False
        self.memory_bytes = 0
        self._segment_bytes = 0
        self._abilities = abilities
        self._shared: SharedFiles | None = None
        self.throttle = Throttle(entry.limits, now, abilities.processors)
        self.gauge = self._own_gauge()
        self._used = Gains()
        self._throttled_seconds = 0.0
        self._memory_peak: int | None = None
        self._pids_peak: int | None = None
        self._killed = 0
        self._written_at = self._shim_seen_at = now
        self._last_report: MeasuredUsage | None = None
        self._take_up()
        self.shim = _find_shim(entry)

    @property
    def is_over(self) -> bool:
        """Whether the shim is gone, and so every process of the execution."""
        return self.shim is None

    @property
    def is_condemned(self) -> bool:
        """Whether the execution is being killed."""
        return self.verdict is not None

    @property
    def must_be_judged(self) -> bool:
        """Whether a debt or an end is pending, so that a look matters though no process ran."""
        return self.stopped or self.is_condemned or not self.members

    @property
    def mounted(self) -> tuple[int, int]:
        """The device of the execution's /dev/shm and the bytes used there; (0, 0) if unknown."""
        shared = self._shared
        return (0, 0) if shared is None else (shared.device, shared.mounted_bytes())

    @property
    def segments(self) -> tuple[int, int]:
        """The inode of the ipc namespace and the bytes of System V segments at the last scan."""
        return (0, 0) if self._shared is None else (self._shared.namespace, self._segment_bytes)

    def follow(self, entry: Entry, now: float) -> None:
        """Take over changed limits of the execution."""
        if entry.limits != self.entry.limits:
            self.throttle.set_caps(entry.limits, now)
            self.gauge = self._own_gauge(entry)
        self.entry = entry

    def count(self, now: float) -> Gains:
        """Look at every process."""
        if self.shim is None:
            return Gains()
        parent_too = now - self._shim_seen_at >= _SHIM_SECONDS
        gains = self.look(self.shim, parent_too=parent_too)
        self.throttle.advance(now, gains)
        if parent_too:
            self._shim_seen_at = now
        elif not self.changed:
            return gains
        self._used.add(gains)
        if self.members:
            self._pids_peak = max(self._pids_peak or 0, self.threads)
        if self.shim.pid in self.gone or self.shim.is_zombie:
            self.shim.close()
            self.shim = None
        return gains

    def note_memory(self, used_bytes: int) -> None:
        """Record the memory that the last look found, in bytes."""
        self.memory_bytes = used_bytes
        if any(not process.is_setup for process in self.members.values()):
            self._memory_peak = max(self._memory_peak or 0, used_bytes)

    def note_stopped(self, seconds: float) -> None:
        """Add `seconds` for which the execution was stopped."""
        if self.members:
            self._throttled_seconds += seconds

    def meet(self, process: Process, uid: int | None) -> None:
        """Add a new process.

        The first process, a child of the shim that has not execed, shows the execution's
        namespaces.
        """
        if self._pids_peak is None and self.shim is not None:
            # Only the first process that the shim forked is the set-up. An orphan that the command
            # made in its first moments is a child of the shim, too.
            is_alone = not self.members
            for other in self.members.values():
                other.is_setup = False
            process.is_setup = (
                is_alone and process.parent == self.shim.pid and not process.has_execed
            )
            if process.is_setup:
                # CPU time and IO before the exec are not the command's.
                with suppress(*GONE):
                    process.look()
        self.members[process.pid] = process
        if self._shared is None and self._abilities.sees_shared:
            with suppress(OSError):
                self._shared = SharedFiles(process.pid, uid)

    def scan(self, walker: Walker, now: float) -> Generator[None, None, None]:
        """Find files in memory and System V segments anew, in steps (work.py)."""
        yield from super().scan(walker, now)
        if self._shared is not None:
            self._segment_bytes = yield from self._shared.other_bytes()

    def condemn(self, verdict: Verdict) -> None:
        """Write the verdict before the kill."""
        self.verdict = verdict
        self._killed = len(self.members)
        try:
            VERDICT.write(self.entry.evidence_directory, VERDICT_FILE, verdict)
        except OSError as exc:
            # The shim gets the verdict as an answer to its order "ended", too.
            sys.stderr.write(f"cannot write the verdict on {self.entry.id}: {exc}\n")

    def kill(self) -> None:
        """Kill every process; the shim sees the command end and kills processes born meanwhile."""
        self.signal(signal.SIGKILL)

    def close(self) -> None:
        """Close the descriptors, which hold memory, and forget the processes."""
        super().close()
        if self.shim is not None:
            self.shim.close()
        if self._shared is not None:
            self._shared.close()

    # -- usage

    def report(self) -> MeasuredUsage:
        """Return the measured usage; None for values that were not measured."""
        seen = self._pids_peak is not None
        return MeasuredUsage(
            memory_peak_bytes=self._memory_peak or None,
            pids_peak=self._pids_peak,
            cpu_seconds=self._used.cpu_seconds if seen else None,
            io_read_bytes=self._used.io_read if seen and self._reads_io else None,
            io_written_bytes=self._used.io_written if seen and self._reads_io else None,
            cpu_throttled_seconds=self._throttled_seconds if seen else None,
            oom_kills=self._killed if seen else None,
        )

    def usage(self) -> LiveUsage:
        """Return the usage as of the last look; None for unknown values."""
        report = self.report()
        return LiveUsage(
            memory_bytes=self.memory_bytes if self.members else 0,
            memory_peak_bytes=report.memory_peak_bytes,
            cpu_seconds=report.cpu_seconds,
            cpu_throttled_seconds=report.cpu_throttled_seconds,
            pids=self.threads,
            pids_peak=report.pids_peak,
            io_read_bytes=report.io_read_bytes,
            io_written_bytes=report.io_written_bytes,
        )

    @property
    def cpu_seconds(self) -> float:
        """The CPU time used so far."""
        return self._used.cpu_seconds

    def write_report(self, now: float, *, at_once: bool = False) -> None:
        """Write changed usage for shim and successor, once a second at most unless `at_once`."""
        if at_once or now - self._written_at >= _WRITE_SECONDS:
            self._written_at = now
            report = self.report()
            if report == self._last_report:
                return
            self._last_report = report
            # The directory goes with the execution.
            with suppress(OSError):
                USAGE.write(self.entry.evidence_directory, USAGE_FILE, report)

    def _take_up(self) -> None:
        """Continue from the files of a predecessor."""
        directory = self.entry.evidence_directory
        with suppress(OSError, ValueError):
            self.verdict = VERDICT.read(directory, VERDICT_FILE)
            before = USAGE.read(directory, USAGE_FILE)
            if before is not None and before.pids_peak is not None:
                self._memory_peak, self._pids_peak = before.memory_peak_bytes, before.pids_peak
                self._throttled_seconds = before.cpu_throttled_seconds or 0.0
                self._killed = before.oom_kills or 0
                self._used = Gains(
                    before.cpu_seconds or 0.0,
                    before.io_read_bytes or 0,
                    before.io_written_bytes or 0,
                )

    def _own_gauge(self, entry: Entry | None = None) -> MemoryGauge | None:
        limit = (entry or self.entry).limits.memory_bytes
        return None if limit is None else MemoryGauge(limit)


def _find_shim(entry: Entry) -> Process | None:
    try:
        shim = Process(entry.shim_pid)
        shim.look()
    except GONE:
        return None
    if shim.start_time != entry.shim_start_time or shim.is_zombie:
        shim.close()
        return None
    with suppress(PermissionError):
        shim.look_at_io()
    return shim
