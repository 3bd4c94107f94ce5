# SPDX-License-Identifier: Apache-2.0
"""One sandbox under supervision: counted, judged and, if need be, stopped at each look."""

from __future__ import annotations

import resource
import signal
import sys
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress

from sandboxd.osutil.processes import GONE
from sandboxd.protocol.dialogue import LiveUsage
from sandboxd.protocol.evidence import Owner, Reason, Verdict
from sandboxd.protocol.supervision import State, StateDirectory
from sandboxd.supervisor import pace
from sandboxd.supervisor.execution import Execution
from sandboxd.supervisor.files import Walker
from sandboxd.supervisor.group import Group
from sandboxd.supervisor.host import Abilities
from sandboxd.supervisor.judgement import View, is_over, oom_verdict, own_bytes
from sandboxd.supervisor.memory import MemoryGauge
from sandboxd.supervisor.order import continue_children, stop_parents
from sandboxd.supervisor.process import Process
from sandboxd.supervisor.scan import Scan
from sandboxd.supervisor.throttle import Gains, Throttle
from sandboxd.supervisor.uid_signaller import UidSignaller

_BEGIN_SECONDS = 1.0
_QUIET_SECONDS = 1.0


class Sandbox:
    """All processes of one sandbox."""

    def __init__(
        self,
        state: State,
        directory: StateDirectory,
        abilities: Abilities,
        signaller: UidSignaller,
        *,
        shared_bytes: int,
    ) -> None:
        """shared_bytes: files in memory of the whole host, now."""
        now = time.monotonic()
        self.state = state
        self.executions: dict[str, Execution] = {}
        self.strays = Group(
            reads_io=abilities.reads_io, measures_exactly=abilities.measures_exactly
        )
        self.scan = Scan(shared_bytes, now)
        # When a look is due, and when due if the host's free memory fell since.
        self.due = self.due_if_grown = now
        self._free_bytes = 0
        self._directory = directory
        self._abilities = abilities
        self._signaller = signaller
        self._gauge = MemoryGauge(state.limits.memory_bytes or 1 << 62)
        self._throttle = Throttle(state.limits, now, abilities.processors)
        # A predecessor may have left the sandbox stopped.
        self._stopped = directory.was_throttled(state.sandbox)
        self._marked = self._stopped
        self._has_newcomers = False
        self._has_new_caps = False
        self._must_judge = True
        self._bytes_per_second = 0.0
        self._idle_period = pace.LONGEST_SECONDS
        self._looked_at = self._seen_at = now
        self._took = 0.0
        self._unseen = self._files_bytes = 0
        self._is_blind = False
        # Whether no earlier supervisor had the sandbox: else sums and peaks since its start are
        # unknown.
        self.is_whole = False
        self._memory_peak = self._pids_peak = 0
        self._throttled_seconds = 0.0
        self.follow(state)

    def follow(self, state: State) -> list[Execution]:
        """Take over a changed state; return the executions that are no longer wanted."""
        now = time.monotonic()
        if state.limits != self.state.limits:
            self._gauge = MemoryGauge(state.limits.memory_bytes or 1 << 62)
            self._throttle.set_caps(state.limits, now)
            self._has_new_caps = True
        if self.state.suspended and not state.suspended:
            # The shims let everybody go on.
            self._stopped = False
        self.state = state
        for entry in state.executions:
            if entry.id in self.executions:
                self.executions[entry.id].follow(entry, now)
            else:
                self.executions[entry.id] = Execution(entry, self._abilities, now)
        self._must_judge = True
        if self._has_new_caps:
            self._has_new_caps = False
            self._change_rlimits()
        wanted = {entry.id for entry in state.executions}
        dropped = [e for e in self.executions.values() if e.entry.id not in wanted or e.is_over]
        for execution in dropped:
            del self.executions[execution.entry.id]
        self.due = now
        return dropped

    @property
    def is_watched(self) -> bool:
        """Whether there is a process or an execution to look at."""
        return bool(self.executions or self.strays.members)

    @property
    def used_bytes(self) -> int:
        """The memory used as of the last look."""
        return self._gauge.used_bytes

    def meet(self, process: Process, execution: Execution | None) -> None:
        """Add a new process."""
        self._has_newcomers = True
        if execution is None:
            self.strays.members[process.pid] = process
        else:
            execution.meet(process, self.state.uid)

    def usage(self) -> LiveUsage:
        """Return the usage at the last look, CPU and IO of running executions; None = unknown."""
        running = [execution.report() for execution in self.executions.values()]
        reads_io = self._abilities.reads_io
        whole = self.is_whole
        return LiveUsage(
            memory_bytes=self._gauge.used_bytes,
            memory_peak_bytes=self._memory_peak if whole else None,
            cpu_seconds=sum(report.cpu_seconds or 0.0 for report in running),
            cpu_throttled_seconds=self._throttled_seconds if whole else None,
            pids=self._threads,
            pids_peak=self._pids_peak if whole else None,
            io_read_bytes=sum(r.io_read_bytes or 0 for r in running) if reads_io else None,
            io_written_bytes=sum(r.io_written_bytes or 0 for r in running) if reads_io else None,
            of_running_only=True,
        )

    @property
    def _threads(self) -> int:
        return sum(one.threads for one in self._groups())

    def kill(self) -> None:
        """Send SIGKILL to all processes."""
        self._signal_all(signal.SIGKILL)

    def leave(self) -> None:
        """Continue all stopped processes before the supervisor ends."""
        if self._stopped and not self.state.suspended:
            continue_children(self._members())
            self._signal_all(signal.SIGCONT)
        for execution in self.executions.values():
            if execution.stopped and not self.state.suspended:
                continue_children(execution.members)
                execution.signal(signal.SIGCONT)
            execution.write_report(time.monotonic(), at_once=True)

    @property
    def is_fresh(self) -> bool:
        """Whether the last look is too recent for a new look to be worth the cost."""
        return time.monotonic() - self._seen_at < self._took * pace.DUTY

    def scan_steps(self, walker: Walker, now: float) -> Generator[None, None, None]:
        """Find files in memory anew, in steps (work.py)."""
        for one in list(self._groups()):
            yield from one.scan(walker, now)

    @property
    def is_measuring(self) -> bool:
        """Whether an exact sum is being read."""
        return self._gauge.is_measuring or any(
            e.gauge is not None and e.gauge.is_measuring for e in self.executions.values()
        )

    def judge_soon(self) -> None:
        """Look now, after a scan, if the files changed or the sandbox is stopped for the scan."""
        files = sum(sum(one.files.values()) for one in self._groups())
        files += sum(execution.segments[1] for execution in self.executions.values())
        if files != self._files_bytes or self._is_blind:
            self._files_bytes = files
            self._must_judge = True
            self.due = time.monotonic()

    @property
    def room_bytes(self) -> int:
        """The bytes left before a limit is exceeded."""
        rooms = [self._gauge.room_bytes()]
        rooms += [e.gauge.room_bytes() for e in self._living() if e.gauge is not None]
        return min(rooms)

    def hurry(self, now: float, free_bytes: int) -> None:
        """Make a look due now if the host's free memory fell since the last look."""
        if self._free_bytes - free_bytes > pace.FALL_BYTES:
            self.due = now
        else:
            self._free_bytes = max(self._free_bytes, free_bytes)
            self.due_if_grown = pace.on_grid(now + pace.LONGEST_SECONDS)

    def look(
        self, now: float, *, shared_bytes: int, free_bytes: int, slice_seconds: float
    ) -> list[int]:
        """Count, judge, stop or continue; return the pids of ended processes, which may be reused.

        shared_bytes, free_bytes: the host's files in memory and free memory, now. slice_seconds:
        how long exact sums may take at this look.
        """
        self._seen_at = now
        self._free_bytes = free_bytes
        if self._is_quiet(now):
            self._took = time.monotonic() - now
            self.due_if_grown = pace.on_grid(now + self._idle_period)
            self.due = pace.on_grid(now + pace.of_quiet(self._idle_period, self._took))
            return []
        elapsed, self._looked_at = now - self._looked_at, now
        gains = self.strays.look()
        gone = self.strays.gone
        changed = self.strays.changed
        for execution in self.executions.values():
            self._note_stop(execution, elapsed)
            gains.add(execution.count(now))
            if execution.changed:
                changed = True
                gone = gone + execution.gone
        self._throttle.advance(now, Gains() if self.state.suspended else gains)
        before = self._gauge.used_bytes
        counted = time.monotonic()
        self._unseen = self.scan.unseen(shared_bytes)
        self._judge_memory(View(self._abilities, self._unseen, slice_seconds))
        self._is_blind = self._cannot_know(now)
        judged = time.monotonic()
        self._memory_peak = max(self._memory_peak, self._gauge.used_bytes)
        self._pids_peak = max(self._pids_peak, self._threads)
        if self._stopped and not self.state.suspended:
            self._throttled_seconds += elapsed
        self._bytes_per_second = (self._gauge.used_bytes - before) / max(elapsed, pace.GRID_SECONDS)
        self._judge_times()
        for execution in self.executions.values():
            if execution.is_condemned:
                execution.kill()
            execution.write_report(now)
        if not self.state.suspended:
            self._steer(gains)
        self._has_newcomers = False
        # Measuring is limited separately (memory.py).
        self._took = time.monotonic() - now - (judged - counted)
        self._wait(now, self._period(now, self._took))
        # Without a process that ran no sum can change, unless a debt or an end is pending.
        self._must_judge = (
            changed
            or self._stopped
            or not self._throttle.is_idle
            or self.is_measuring
            or any(e.must_be_judged for e in self.executions.values())
        )
        return gone

    def _cannot_know(self, now: float) -> bool:
        """Whether a limit may be exceeded and measuring takes long: then the sandbox is stopped."""
        gauges = [self._gauge, *(e.gauge for e in self._living() if e.gauge is not None)]
        if any(gauge.is_blind for gauge in gauges):
            return True
        return self.scan.is_long(now) and self._unseen > self.room_bytes

    def _is_quiet(self, now: float) -> bool:
        """Whether no process ran since a look without open questions; False once a second."""
        if self._must_judge or self._has_newcomers or now - self._looked_at > _QUIET_SECONDS:
            return False
        try:
            return all(p.is_unchanged() for one in self._groups() for p in one.members.values())
        except GONE:
            return False

    def _wait(self, now: float, period: float) -> None:
        """Set the next look on the common grid: a single wake serves many sandboxes."""
        self._idle_period = period
        self.due = self.due_if_grown = pace.on_grid(now + period)

    # -- memory

    def _living(self) -> list[Execution]:
        """Executions not condemned: a condemned one's memory must not count against the rest."""
        return [e for e in self.executions.values() if not e.is_condemned]

    def _judge_memory(self, view: View) -> None:
        living = self._living()
        groups: list[Group] = [self.strays, *living]
        if is_over(self._gauge, groups, living, view):
            self._condemn_all(living)
            return
        for execution in living:
            own = execution.gauge or MemoryGauge(1 << 62)
            passed = is_over(own, [execution], [execution], view)
            execution.note_memory(min(own.used_bytes, self._gauge.used_bytes))
            if passed:
                execution.condemn(oom_verdict(Owner.EXECUTION, own))
                execution.kill()

    def _condemn_all(self, living: Iterable[Execution]) -> None:
        verdict = oom_verdict(Owner.SANDBOX, self._gauge)
        for execution in living:
            execution.note_memory(min(self._gauge.used_bytes, own_bytes(execution)))
            execution.condemn(verdict)
        self.kill()

    # -- time

    def _judge_times(self) -> None:
        for execution in self._living():
            limit = execution.entry.limits.cpu_seconds
            if limit is not None and execution.cpu_seconds >= limit:
                used = execution.cpu_seconds
                verdict = Verdict(
                    Reason.CPU_TIME, Owner.EXECUTION, limit_seconds=limit, used_seconds=used
                )
                execution.condemn(verdict)
                execution.kill()

    def _change_rlimits(self) -> None:
        """Set new rlimits on running processes, where this host allows (prlimit(2))."""
        if not self._abilities.changes_rlimits:
            return
        for execution in self.executions.values():
            caps = execution.entry.limits
            pids = caps.pids or self.state.limits.pids
            data = caps.data_bytes or self.state.limits.data_bytes
            for pid in execution.members:
                with suppress(ProcessLookupError, PermissionError, ValueError):
                    if pids is not None and self.state.uid is not None:
                        resource.prlimit(pid, resource.RLIMIT_NPROC, (pids, pids))
                    if data is not None:
                        resource.prlimit(pid, resource.RLIMIT_DATA, (data, data))

    def _note_stop(self, execution: Execution, seconds: float) -> None:
        if (self._stopped or execution.stopped) and not self.state.suspended:
            execution.note_stopped(seconds)

    def _steer(self, gains: Gains) -> None:
        """Stop the processes that used too much, continue those whose debt is paid."""
        must_stop = self._throttle.is_overdrawn or self._is_blind
        # A process born meanwhile, or sent a SIGCONT from inside, runs though the sandbox is
        # stopped.
        runs = not self._stopped or self._has_newcomers or gains.cpu_seconds > 0
        if must_stop and runs:
            self._mark()
            stop_parents(self._members())
            self._signal_all(signal.SIGSTOP)
        elif self._stopped and not must_stop:
            continue_children(self._members())
            self._signal_all(signal.SIGCONT)
            for execution in self.executions.values():
                execution.stopped = False
        self._stopped = must_stop
        if must_stop:
            return
        for execution in self.executions.values():
            must_stop = execution.throttle.is_overdrawn
            if must_stop:
                # Repeated at each look: a process just being born was not in the list before.
                self._mark()
                stop_parents(execution.members)
                execution.signal(signal.SIGSTOP)
            elif execution.stopped:
                continue_children(execution.members)
                execution.signal(signal.SIGCONT)
            execution.stopped = must_stop

    def _mark(self) -> None:
        if not self._marked:
            try:
                self._directory.mark_throttled(self.state.sandbox)
            except OSError as exc:
                # The limit holds all the same; a successor would not know that the sandbox is
                # stopped.
                sys.stderr.write(f"cannot note that {self.state.sandbox} is stopped: {exc}\n")
            self._marked = True

    def _signal_all(self, number: int) -> None:
        if self.state.uid is not None and self._signaller.reaches_uids:
            self._signaller.signal_uid(self.state.uid, number)
            return
        for one in self._groups():
            one.signal(number)

    def _period(self, now: float, took: float) -> float:
        """Return the seconds until the next look."""
        if self._stopped:
            debt = self._throttle.seconds_of_debt
            return pace.of_stopped(pace.LONGEST_SECONDS if self._is_blind else debt)
        throttles = [self._throttle]
        begins = False
        for execution in self.executions.values():
            throttles.append(execution.throttle)
            begins |= not execution.members and now - execution.began < _BEGIN_SECONDS
        room = self.room_bytes - (self._unseen if self.scan.is_long(now) else 0)
        return pace.of_running(
            max(0, room), self._bytes_per_second, took,
            is_busy=not all(throttle.is_idle for throttle in throttles), begins=begins,
        )  # fmt: skip

    def _members(self) -> dict[int, Process]:
        return {pid: one for group in self._groups() for pid, one in group.members.items()}

    def _groups(self) -> Iterator[Group]:
        yield self.strays
        yield from self.executions.values()
