# SPDX-License-Identifier: Apache-2.0
"""What is measured. Each case takes a daemon and answers figures by name; ratios are to `BASE`."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.harness import ROOT, Daemon

from . import processes, rivals
from .samples import Way, interleaved, milliseconds, ratios, spread

Figures = dict[str, Any]
BOMB = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass\n"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done: full figures, or what a look at a regression needs."""

    rounds: int
    sandboxes: int
    idle_seconds: float
    output_bytes: int


QUICK = Plan(rounds=20, sandboxes=30, idle_seconds=5, output_bytes=64 << 20)
FULL = Plan(rounds=100, sandboxes=300, idle_seconds=20, output_bytes=512 << 20)


def base_of(names: Mapping[str, object]) -> str:
    """What the ratios are to: what people would use instead, as far as the host has it."""
    order = ("systemd-run --scope + bwrap", "bwrap", "fork + exec")
    return next(name for name in order if name in names)


@contextmanager
def sandbox(daemon: Daemon, **body: Any) -> Iterator[str]:
    made = daemon.create(limits=rivals.LIMITS, **body)["id"]
    try:
        yield made
    finally:
        daemon.release(made)


def execute(daemon: Daemon, sandbox_id: str) -> None:
    ran = daemon.execute(sandbox_id, list(rivals.COMMAND))
    if ran["exit_code"] != 0 or ran["usage"] is None:
        raise AssertionError(ran)


def run_once(daemon: Daemon) -> None:
    body = {"argv": list(rivals.COMMAND), "limits": rivals.LIMITS}
    if daemon.ok("POST", "/v1/run", body)["exit_code"] != 0:
        raise AssertionError("run")


def by_ctl(daemon: Daemon) -> Way:
    start = "import sys; from sandboxd.ctl.main import main; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-P", "-c", start, "run", "-q", "--memory", "256M", "--cpus", "1",
            "--pids", "64", "--", *rivals.COMMAND]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SANDBOXD_SOCKET": daemon.socket}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return partial(subprocess.run, argv, env=environment, check=True, stdin=subprocess.DEVNULL)


def levels(daemon: Daemon) -> list[str]:
    offered = daemon.ok("GET", "/v1/host")["isolation"]["levels"]
    return [name for name in ("basic", "standard", "strict") if offered[name]["available"]]


def latency(daemon: Daemon, plan: Plan, scratch: Path) -> Figures:
    """From the request to the answer with verdict and usage, one at a time."""
    with contextlib.ExitStack() as stack:
        ways = rivals.available(scratch)
        for level in levels(daemon):
            made = stack.enter_context(sandbox(daemon, isolation=level))
            ways[f"sandboxd execution, {level}"] = partial(execute, daemon, made)
        ways["POST /v1/run"] = partial(run_once, daemon)
        ways["sandboxctl run"] = by_ctl(daemon)
        taken = interleaved(ways, plan.rounds)
    base = base_of(taken)
    return {
        "base": base,
        "milliseconds": {name: asdict(each) for name, each in taken.items()},
        "ratio": ratios(taken, base),
    }


def cpu(daemon: Daemon, plan: Plan, scratch: Path) -> Figures:
    """Processor time of one execution by process; shims and commands are the spawner's children."""
    with sandbox(daemon) as made:
        execute(daemon, made)
        pids = processes.of(daemon)
        readers: dict[str, Callable[[], float]] = {
            name: partial(processes.cpu_milliseconds, pid) for name, pid in pids.items()
        }
        readers["shim and command"] = partial(
            processes.cpu_milliseconds, pids["spawner"], children=True
        )
        before = {name: read() for name, read in readers.items()}
        for _ in range(plan.rounds):
            execute(daemon, made)
        each = {
            name: round((read() - before[name]) / plan.rounds, 2) for name, read in readers.items()
        }
    ways = rivals.available(scratch)
    floor_name = "bwrap" if "bwrap" in ways else "fork + exec"
    way = ways[floor_name]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(plan.rounds):
        way()
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    floor = (now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime) * 1000 / plan.rounds
    total = round(sum(each.values()), 2)
    return {
        "milliseconds": {**each, "total": total, floor_name: round(floor, 2)},
        "ratio": {"total": round(total / floor, 2)},
    }


def throughput(daemon: Daemon, plan: Plan, scratch: Path) -> Figures:
    """Executions each second with 1, 8 and 32 in flight, over as many sandboxes as 8."""
    del scratch
    rates: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(sandbox(daemon)) for _ in range(8)]
        for width in (1, 8, 32):
            work = iter([made[number % 8] for number in range(plan.rounds * 4)])
            lock = threading.Lock()
            errors: list[BaseException] = []
            drain = partial(_drain, daemon, work, lock, errors)
            threads = [threading.Thread(target=drain) for _ in range(width)]
            took = milliseconds(partial(_join, threads)) / 1000
            if errors:
                raise errors[0]
            rates[str(width)] = round(plan.rounds * 4 / took, 1)
    ratio = {f"{width} in flight": round(rates[width] / rates["1"], 2) for width in ("8", "32")}
    return {"per_second": rates, "ratio_more_is_better": ratio}


def _drain(
    daemon: Daemon, work: Iterator[str], lock: threading.Lock, errors: list[BaseException]
) -> None:
    try:
        while True:
            with lock:
                made = next(work, None)
            if made is None:
                return
            execute(daemon, made)
    except Exception as exc:
        errors.append(exc)


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def life(daemon: Daemon, plan: Plan, scratch: Path) -> Figures:
    """Create and release without an execution, beside one execution."""
    del scratch

    def whole(level: str) -> None:
        with sandbox(daemon, isolation=level):
            pass

    with sandbox(daemon) as made:
        ways: dict[str, Way] = {level: partial(whole, level) for level in levels(daemon)}
        ways["execution"] = partial(execute, daemon, made)
        taken = interleaved(ways, plan.rounds)
    return {
        "milliseconds": {name: asdict(each) for name, each in taken.items()},
        "ratio": ratios(taken, "execution"),
    }


def memory(daemon: Daemon, plan: Plan, scratch: Path) -> Figures:
    """Resident memory of the daemon, idle and for each idle sandbox; private memory of a shim."""
    del scratch
    pids = processes.of(daemon)
    resident = {name: processes.resident_bytes(pid) for name, pid in pids.items()}
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(sandbox(daemon)) for _ in range(plan.sandboxes)]
        grown = processes.resident_bytes(pids["daemon"]) - resident["daemon"]
        begun = [daemon.execute(one, ["sleep", "60"], wait=False) for one in made[:5]]
        helpers = set(pids.values())
        shims = [pid for pid in processes.children(pids["spawner"]) if pid not in helpers]
        private = [processes.private_bytes(pid) for pid in shims]
        for one in begun:
            daemon.ok("POST", f"/v1/sandboxes/{one['sandbox_id']}/executions/{one['id']}/kill", {})
    return {
        "kib": {
            **{name: size >> 10 for name, size in resident.items()},
            "each idle sandbox": round(grown / plan.sandboxes / 1024, 1),
            "private of a shim": round(sum(private) / max(1, len(private)) / 1024, 1),
        }
    }


def output(daemon: Daemon, plan: Plan, scratch: Path) -> Figures:
    """Bytes of output through a sandbox to its spool, as a share of `command | cat > file`."""
    shell = f"head -c {plan.output_bytes} /dev/zero"
    target = scratch / "output"
    plain = ["/bin/sh", "-c", f"{shell} | cat > {target}"]
    with sandbox(daemon) as made:
        cap = plan.output_bytes + 1
        ways: dict[str, Way] = {
            "| cat > file": partial(subprocess.run, plain, check=True),
            "sandboxd": partial(daemon.execute, made, shell, max_output_bytes=cap),
        }
        taken = interleaved(ways, 3)
    target.unlink()
    ratio = taken["| cat > file"].p50 / taken["sandboxd"].p50
    return {
        "milliseconds": {name: asdict(each) for name, each in taken.items()},
        "ratio_more_is_better": {"speed": round(ratio, 2)},
    }


def idle(daemon: Daemon, plan: Plan, scratch: Path) -> Figures:
    """Wake-ups each second and share of a processor with no sandbox alive."""
    del scratch
    pids = processes.of(daemon)
    # The last of what came before is to be over.
    time.sleep(2.5)
    before = {
        name: (processes.wake_ups(pid), processes.live_milliseconds(pid))
        for name, pid in pids.items()
    }
    time.sleep(plan.idle_seconds)
    figures: Figures = {"wake_ups_per_second": {}, "percent_of_a_processor": {}}
    for name, pid in pids.items():
        woke = processes.wake_ups(pid) - before[name][0]
        used = processes.live_milliseconds(pid) - before[name][1]
        figures["wake_ups_per_second"][name] = round(woke / plan.idle_seconds, 2)
        figures["percent_of_a_processor"][name] = round(used / plan.idle_seconds / 10, 3)
    return figures


def neighbours(daemon: Daemon, plan: Plan, scratch: Path) -> Figures:
    """An execution's time beside another sandbox's fork bomb and processor spin, to that alone."""
    del scratch
    hostile = {
        "fork bomb": ["python3", "-c", BOMB],
        "spin": ["sh", "-c", "while :; do :; done"],
    }
    with sandbox(daemon) as made:
        alone = interleaved({"alone": partial(execute, daemon, made)}, plan.rounds)["alone"]
        ratio = {}
        for name, argv in hostile.items():
            with sandbox(daemon) as other:
                daemon.execute(other, argv, wait=False)
                beside = spread(
                    [milliseconds(partial(execute, daemon, made)) for _ in range(plan.rounds)]
                )
            ratio[f"{name}, p50"] = round(beside.p50 / alone.p50, 2)
            ratio[f"{name}, p99"] = round(beside.p99 / alone.p99, 2)
    return {"ratio": ratio}


CASES: dict[str, Callable[[Daemon, Plan, Path], Figures]] = {
    "idle": idle,
    "latency": latency,
    "cpu": cpu,
    "throughput": throughput,
    "life": life,
    "memory": memory,
    "output": output,
    "neighbours": neighbours,
}
