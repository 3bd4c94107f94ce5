# SPDX-License-Identifier: Apache-2.0
"""A report as text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sandboxd.client.calls import JsonObject
from sandboxd.core.quantity import format_bytes
from sandboxd.ctl.owners import user
from sandboxd.ctl.report.gather import TOP, Report
from sandboxd.ctl.show import Part, command_line, duration
from sandboxd.ctl.verdict import verdict

_BAR_CELLS = 24


def parts(report: Report) -> list[Part]:
    """Return all lines and tables of a report."""
    ended, refused = report.ended, report.refused
    lines: list[Part] = [
        f"{report.since:%Y-%m-%d %H:%M:%S} to {report.until:%Y-%m-%d %H:%M:%S} UTC"
    ]
    if report.known_since > report.since:
        lines.append(
            f"sums begin at {report.known_since:%Y-%m-%d %H:%M:%S}: nothing is known before"
        )
    lines += [
        "",
        f"executions ended   {ended.total()}, {report.running} running,"
        f" {report.highest('executions') or 0:g} at once at most",
        f"processor time     {_seconds(report.total('cpu_seconds'))}",
        f"memory, most       {_size(report.highest('memory_bytes'))}",
        f"read, written      {_size(report.total('io_read_bytes'))},"
        f" {_size(report.total('io_written_bytes'))}",
        f"requests refused   {refused.total()}",
    ]
    lines += _counts("VERDICT", ended) + _counts("LIMIT OR REASON", report.codes)
    lines += _counts("REFUSED", refused)
    if report.sandboxes:
        rows = [
            (one.sandbox_id, one.name or "-", str(one.executions), _seconds(one.cpu_seconds),
             _size(one.memory_peak_bytes))
            for one in report.sandboxes
        ]  # fmt: skip
        lines += ["", [("SANDBOX", "NAME", "EXECUTIONS", "CPU", "PEAK"), *rows]]
    if len(report.owners) > 1:
        rows = [
            (_owner(one), str(sum(one["ended"].values())), _seconds(one["cpu_seconds"]),
             _size(one["memory_bytes"]), str(sum(one["refused"].values())))
            for one in report.owners[:TOP]
        ]  # fmt: skip
        lines += ["", [("OWNER", "ENDED", "CPU", "MEMORY", "REFUSED"), *rows]]
    # On a narrow terminal these names keep the column of the sort key.
    lines += _executions(("EXECUTION BY CPU", "CPU", "PEAK"), report.by_cpu)
    lines += _executions(("EXECUTION BY MEMORY", "CPU TIME", "MEMORY PEAK"), report.by_memory)
    if ended.total() > report.records:
        lines += ["", f"records of {report.records} of {ended.total()} executions are kept"]
    return lines


def _counts(title: str, counter: Counter[str]) -> list[Part]:
    whole = counter.total()
    if not whole:
        return []
    rows: list[Sequence[str]] = [(title, "COUNT", "")]
    for name, count in counter.most_common():
        rows.append((name, str(count), "#" * max(1, round(_BAR_CELLS * count / whole))))
    return ["", rows]


def _executions(columns: tuple[str, ...], found: list[JsonObject]) -> list[Part]:
    if not found:
        return []
    rows: list[Sequence[str]] = [("SANDBOX", *columns, "VERDICT", "COMMAND")]
    for one in found:
        used = one["usage"]
        sizes = (_seconds(used["cpu_seconds"]), _size(used["memory_peak_bytes"]))
        command = command_line(one["argv"], width=40)
        rows.append((one["sandbox_id"], one["id"], *sizes, verdict(one), command))
    return ["", rows]


def _owner(one: JsonObject) -> str:
    return "others" if one["owner_uid"] is None else user(one["owner_uid"])


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else duration(value)


def _size(value: float | None) -> str:
    return "unknown" if value is None else format_bytes(int(value))
