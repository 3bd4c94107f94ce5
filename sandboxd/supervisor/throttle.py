# SPDX-License-Identifier: Apache-2.0
"""Whether processes must be stopped for now: buckets for CPU time, IO read and IO written. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from sandboxd.protocol.supervision import Caps
from sandboxd.supervisor.bucket import TokenBucket


@dataclass(slots=True)
class Gains:
    """What was used since the last look."""

    cpu_seconds: float = 0.0
    io_read: int = 0
    io_written: int = 0

    def add(self, other: Gains) -> None:
        """Sum up."""
        self.cpu_seconds += other.cpu_seconds
        self.io_read += other.io_read
        self.io_written += other.io_written


class Throttle:
    """The buckets of a sandbox, or of an execution with limits of its own."""

    def __init__(self, caps: Caps, now: float, processors: int) -> None:
        self._processors = processors
        self._buckets: dict[str, TokenBucket] = {}
        self.set_caps(caps, now)

    def set_caps(self, caps: Caps, now: float) -> None:
        """Change the limits. A CPU limit of all processors or more is no limit."""
        cpus = caps.cpus if caps.cpus is not None and caps.cpus < self._processors else None
        rates = {
            "cpu_seconds": cpus,
            "io_read": caps.io_read_bytes_per_second,
            "io_written": caps.io_write_bytes_per_second,
        }
        for name, rate in rates.items():
            if rate is None:
                self._buckets.pop(name, None)
            elif name in self._buckets:
                self._buckets[name].set_rate(rate)
            else:
                self._buckets[name] = TokenBucket(rate, now)

    def advance(self, now: float, gains: Gains) -> None:
        """Fill the buckets for the time gone by, then take the usage."""
        for name, bucket in self._buckets.items():
            bucket.advance(now, getattr(gains, name))

    @property
    def is_overdrawn(self) -> bool:
        """Whether the processes must be stopped."""
        return any(bucket.is_overdrawn for bucket in self._buckets.values())

    @property
    def is_idle(self) -> bool:
        """Whether next to no limited resource was used lately."""
        return all(bucket.is_full for bucket in self._buckets.values())

    @property
    def seconds_of_debt(self) -> float:
        """The seconds until the largest debt is paid."""
        return max((bucket.seconds_of_debt for bucket in self._buckets.values()), default=0.0)
