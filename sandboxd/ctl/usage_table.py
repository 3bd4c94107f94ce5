# SPDX-License-Identifier: Apache-2.0
"""Tables of samples: for `stats` once, for `top` repeatedly."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sandboxd.client.calls import JsonObject
from sandboxd.core.quantity import format_bytes
from sandboxd.ctl.samples import Sample
from sandboxd.ctl.show import age, command_line
from sandboxd.ctl.verdict import verdict

_BAR_CELLS = 10
_COLUMNS = (
    "SANDBOX", "NAME", "STATE", "CPU", "MEMORY", "OF LIMIT", "PIDS", "READ/s", "WRITE/s", "DISK",
    "PRESSURE c/m/io", "RUNNING",
)  # fmt: skip
_RUNNING_COLUMNS = (
    "SANDBOX", "EXECUTION", "AGE", "CPU", "MEMORY", "OF LIMIT", "PIDS", "READ/s", "WRITE/s",
    "PRESSURE c/m/io", "COMMAND",
)  # fmt: skip
_ENDED_COLUMNS = ("SANDBOX", "EXECUTION", "ENDED", "CPU s", "PEAK", "VERDICT", "COMMAND")

# Sort orders by name; the largest comes first.
ORDERS: dict[str, Callable[[Sample], float]] = {
    "cpu": lambda sample: sample.cpu_cores or 0.0,
    "memory": lambda sample: sample.metrics["memory"]["current_bytes"] or 0,
    "pids": lambda sample: sample.metrics["pids"]["current"] or 0,
    "io": lambda sample: (sample.read_rate or 0.0) + (sample.write_rate or 0.0),
    "disk": lambda sample: sample.metrics.get("disk", {}).get("used_bytes") or 0,
}
# Orders that need two samples.
BY_RATE = frozenset({"cpu", "io"})


def rows(samples: list[Sample], order: str) -> list[tuple[str, ...]]:
    """Return the header and a row for each sandbox."""
    return [_COLUMNS, *map(_row, ordered(samples, order))]


def ordered(samples: list[Sample], order: str) -> list[Sample]:
    """Sort samples, the largest first."""
    return sorted(samples, key=ORDERS[order], reverse=True)


def running_rows(
    samples: list[Sample], order: str, names: Mapping[str, str]
) -> list[tuple[str, ...]]:
    """Return the header and a row for each running execution. names: by sandbox id."""
    found = ordered(samples, order)
    return [_RUNNING_COLUMNS, *(_running_row(sample, names) for sample in found)]


def ended_rows(executions: list[JsonObject], names: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Return the header and a row for each ended execution. names: by sandbox id."""
    return [_ENDED_COLUMNS, *(_ended_row(execution, names) for execution in executions)]


def bar(share: float | None) -> str:
    """Draw a share of a limit as a bar."""
    if share is None:
        return "?"
    full = min(_BAR_CELLS, round(share * _BAR_CELLS))
    return f"[{'#' * full}{'.' * (_BAR_CELLS - full)}] {share:4.0%}"


def _row(sample: Sample) -> tuple[str, ...]:
    sandbox, metrics = sample.subject, sample.metrics
    return (
        sandbox["id"],
        sandbox["name"] or "-",
        sandbox["state"],
        *_used(sample),
        _size(metrics["disk"]["used_bytes"]),
        _pressures(sample),
        str(metrics["executions"]["running"]),
    )


def _running_row(sample: Sample, names: Mapping[str, str]) -> tuple[str, ...]:
    execution = sample.subject
    return (
        names.get(execution["sandbox_id"], execution["sandbox_id"]),
        execution["id"],
        age(execution["created_at"]),
        *_used(sample),
        _pressures(sample),
        command_line(execution["argv"], width=40),
    )


def _ended_row(execution: JsonObject, names: Mapping[str, str]) -> tuple[str, ...]:
    used = execution["usage"]
    return (
        names.get(execution["sandbox_id"], execution["sandbox_id"]),
        execution["id"],
        age(execution["finished_at"]),
        _number(used["cpu_seconds"], ".2f"),
        _size(used["memory_peak_bytes"]),
        verdict(execution),
        command_line(execution["argv"], width=40),
    )


def _used(sample: Sample) -> tuple[str, ...]:
    limits, metrics = sample.subject["limits"], sample.metrics
    return (
        f"{_number(sample.cpu_cores, '.2f')}/{limits['cpus']:g}",
        f"{_size(metrics['memory']['current_bytes'])}/{format_bytes(limits['memory_bytes'])}",
        bar(sample.memory_share),
        f"{_number(metrics['pids']['current'], 'd')}/{limits['pids']}",
        _size(sample.read_rate),
        _size(sample.write_rate),
    )


def _pressures(sample: Sample) -> str:
    return "/".join(_number(sample.pressure(name), ".0f") for name in ("cpu", "memory", "io"))


def _number(value: float | None, form: str) -> str:
    return "?" if value is None else format(value, form)


def _size(value: float | None) -> str:
    return "?" if value is None else format_bytes(int(value))
