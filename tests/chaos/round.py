# SPDX-License-Identifier: Apache-2.0
"""One round: twenty executions, a kill at a moment of the seed's choice, and the account."""

from __future__ import annotations

import http.client
import os
import random
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from tests.chaos import programs
from tests.chaos.leftovers import leftovers, spawner
from tests.chaos.programs import Program
from tests.contract.probes import ENDED, eventually, executions, path_of
from tests.harness import Answer, Daemon

PHASES = ("starting", "running", "running", "releasing")
VICTIMS = (("daemon",), ("spawner",), ("daemon", "spawner"), ("spawner", "daemon"))
AWAY = (OSError, http.client.HTTPException)
# Where all waits end at the latest, on a machine that emulates its processor too.
ROUND_SECONDS = 300.0
MEMORY = "64M"


class Round:
    """All that the seed decides is decided here; the moment is as exact as the host is quiet."""

    def __init__(self, daemon: Daemon, seed: int) -> None:
        rng = random.Random(seed)
        self._daemon = daemon
        self._phase = rng.choice(PHASES)
        self._victims = rng.choice(VICTIMS)
        self._after = rng.randrange(1, 19)
        self._pause = rng.uniform(0.0, 1.5)
        self._absence = rng.uniform(0.0, 1.0)
        short_lives = rng.choice((0, 0, 0, 1, 2)) if "daemon" in self._victims else 0
        self._short_lives = [rng.uniform(0.1, 1.2) for _ in range(short_lives)]
        mixed = [make(rng) for make in programs.MIXED]
        rng.shuffle(mixed)
        self._groups: dict[str, list[Program]] = {
            "one": mixed[:7],
            "two": mixed[7:],
            "oom-a": [programs.eating(rng)],
            "oom-b": [programs.eating(rng)],
            "cold": [programs.counting(rng), programs.flooding(rng)],
        }
        self._runs = [programs.counting(rng), programs.eating(rng)]
        self._started: list[tuple[Program, Any]] = []
        self._waits: list[tuple[Program, Future[tuple[Any, bytes]]]] = []
        self._stop = threading.Event()
        self._broken = threading.Event()
        self._began = time.monotonic()
        self._deadline = self._began + ROUND_SECONDS
        # Seconds of the round at which it came so far, for whoever wants it quicker.
        self.times: dict[str, float] = {}

    def __str__(self) -> str:
        return (
            f"{'+'.join(self._victims)} killed {self._pause:.2f} s into {self._phase} "
            f"(after {self._after} starts), back after {self._absence:.2f} s"
            f"{''.join(f', killed {life:.2f} s into the start' for life in self._short_lives)}"
        )

    def run(self) -> None:
        """Raises AssertionError for whatever was lost, wrong or left."""
        with ThreadPoolExecutor(40) as pool:
            churn = [pool.submit(self._churn) for _ in range(2)]
            try:
                self._live(pool)
            except BaseException:
                self._broken.set()
                raise
            finally:
                self._stop.set()
            for work in churn:
                work.result(ROUND_SECONDS)
        self._came_to("released")
        self._account()
        self._came_to("accounted")

    def _came_to(self, name: str) -> None:
        self.times[name] = time.monotonic() - self._began

    # -- the load

    def _live(self, pool: ThreadPoolExecutor) -> None:
        boxes = {name: self._create(name) for name in self._groups}
        self._came_to("created")
        todo = [(boxes[name], p) for name, group in self._groups.items() for p in group]
        todo += [(None, program) for program in self._runs]
        killer = pool.submit(self._kill) if self._phase == "starting" else None
        list(pool.map(lambda one: self._start(pool, *one), todo))
        self._came_to("started")
        self._call("POST", f"/v1/sandboxes/{boxes['cold']['id']}/suspend")
        if self._phase == "running":
            killer = pool.submit(self._kill)
        if killer is not None:
            killer.result(ROUND_SECONDS)
        assert self._state(boxes["cold"]) == "suspended"
        self._call("POST", f"/v1/sandboxes/{boxes['cold']['id']}/resume")
        for program, execution in self._started:
            if program.kind == "reading":
                self._call("POST", f"{path_of(execution)}/stdin", programs.INPUT)
                self._call("POST", f"{path_of(execution)}/stdin/close")
            if not program.ends_by_itself:
                self._call("POST", f"{path_of(execution)}/kill", {}, fine=("EXECUTION_FINISHED",))
        self._came_to("told to end")
        for program, wait in self._waits:
            self._check(program, *wait.result(ROUND_SECONDS))
        self._came_to("ended")
        if self._phase == "releasing":
            killer = pool.submit(self._kill)
        list(pool.map(self._release, boxes.values()))
        if self._phase == "releasing" and killer is not None:
            killer.result(ROUND_SECONDS)
            list(pool.map(self._release, boxes.values()))

    def _create(self, name: str) -> Any:
        fine = ("NAME_IN_USE",)
        body = {"name": name, "limits": {"memory_bytes": MEMORY}}
        answer = self._call("POST", "/v1/sandboxes", body, fine=fine)
        return answer if "id" in answer else self._call("GET", f"/v1/sandboxes/{name}")

    def _start(self, pool: ThreadPoolExecutor, box: Any, program: Program) -> None:
        """A start that was cut off is asked for again: nobody was told of the first."""
        body = {**program.body, "wait": False}
        if box is None:
            limits = {**body.pop("limits", {}), "memory_bytes": MEMORY}
            execution = self._call("POST", "/v1/run", {**body, "limits": limits})
        else:
            execution = self._call("POST", executions(box), body)
        self._started.append((program, execution))
        self._waits.append((program, pool.submit(self._wait, execution)))

    def _wait(self, execution: Any) -> tuple[Any, bytes]:
        """As a client does that waits for the end, and comes again to the next daemon."""
        while not self._broken.is_set():
            ended = self._call("GET", f"{path_of(execution)}?wait=5")
            if ended["status"] in ENDED:
                return ended, self._printed(ended)
        raise AssertionError("the round was given up")

    def _printed(self, execution: Any) -> bytes:
        while True:
            with suppress(*AWAY):
                target = f"{path_of(execution)}/output?stream=stdout"
                answer = self._daemon.request("GET", target)
                assert answer.status == 200, answer.body
                return answer.body

    def _churn(self) -> None:
        """Makes, uses and releases sandboxes until after the kill: some are half made at it."""
        while not self._stop.is_set():
            box = self._call("POST", "/v1/sandboxes", {"limits": {"memory_bytes": "8M"}})
            ran = self._call("POST", executions(box), {"command": "echo churn; exit 3"})
            assert (ran["status"], ran["exit_code"]) == ("EXITED", 3), self._told(ran)
            assert ran["stdout"] == "churn\n", self._told(ran)
            self._release(box)

    def _release(self, box: Any) -> None:
        self._call("DELETE", f"/v1/sandboxes/{box['id']}")

    def _state(self, box: Any) -> str:
        return str(self._call("GET", f"/v1/sandboxes/{box['id']}")["state"])

    # -- the kill

    def _kill(self) -> None:
        if self._phase == "starting":
            eventually(lambda: len(self._started) >= self._after, ROUND_SECONDS)
            time.sleep(self._pause / 10)
        elif self._phase == "running":
            time.sleep(self._pause)
        else:
            time.sleep(self._pause / 20)
        self._came_to("killed")
        for victim in self._victims:
            if victim == "daemon":
                self._daemon.kill()
            elif (pid := spawner(self._daemon)) is not None:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if "daemon" in self._victims:
            time.sleep(self._absence)
            for life in self._short_lives:
                self._start_and_kill(life)
            self._daemon.start()
        self._came_to("back")
        self._stop.set()

    def _start_and_kill(self, seconds: float) -> None:
        """A daemon that is killed while it takes over from the one before."""
        before = self._daemon.process
        with ThreadPoolExecutor(1) as pool:
            start = pool.submit(self._daemon.start)
            eventually(lambda: self._daemon.process is not before)
            time.sleep(seconds)
            self._daemon.kill()
            # It may have got ready in that time, or says that it did not.
            with suppress(AssertionError):
                start.result(60)

    def _call(
        self, method: str, target: str, body: Any = None, *, fine: tuple[str, ...] = ()
    ) -> Any:
        """The answer, from the next daemon if this one went away."""
        while True:
            try:
                answer = self._daemon.request(method, target, body, timeout=90)
            except AWAY:
                if "daemon" not in self._victims or time.monotonic() > self._deadline:
                    raise
                time.sleep(0.02)
                continue
            return self._read(answer, fine)

    def _read(self, answer: Answer, fine: tuple[str, ...]) -> Any:
        assert answer.status < 300 or answer.code in fine, self._told(answer.body.decode())
        return answer.json

    # -- the account

    def _account(self) -> None:
        listed = self._call("GET", "/v1/sandboxes?limit=1000")["sandboxes"]
        for box in listed:
            # What a request made whose client never learned of it.
            if box["state"] != "released":
                self._release(box)
        for one in self._call("GET", "/v1/executions?limit=1000")["executions"]:
            assert one["status"] in ENDED, self._told(one)
            assert one["status"] != "LOST", self._told(one)
        left: set[str] = set()

        def nothing_left() -> bool:
            nonlocal left
            left = leftovers(self._daemon)
            return not left

        with suppress(AssertionError):
            eventually(nothing_left, 15)
        assert left == set(), self._told(str(left))

    def _check(self, program: Program, ended: Any, printed: bytes) -> None:
        told = self._told(f"{program.kind}: { {**ended, 'stdout': '', 'stderr': ''} }")
        assert ended["status"] == program.status, told
        for name, value in program.ends.items():
            assert ended[name] == value, f"{name} is not {value!r}: {told}"
        if program.stdout is not None:
            assert printed == program.stdout, f"{len(printed)} bytes of output: {told}"

    def _told(self, what: object) -> str:
        return f"{what}\n({self})"
