# SPDX-License-Identifier: Apache-2.0
"""A running machine, known by its directory: start, copy in, run, fetch, stop.

Whoever knows the directory can use the machine: its process is named in `state.json` by id and
start time, so that a reused id is never taken for it.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from . import qemu, recipe, source
from .channel import Channel, DeadlinePassed, MachineDied, connect, pass_on
from .host import MachineError, cache_directory
from .image import Image
from .trees import ChunkReader, ChunkWriter, pack, unpack
from .wire import MAX_PAYLOAD, Frame, Kind

COPY_SECONDS = 300.0
HELLO_SECONDS = 60.0
KILL_SECONDS = 30.0
END_SECONDS = 30.0
# Once and not at each start of the daemon: emulated, compiling it takes many seconds. A source
# that does not compile is the tests' business.
_COMPILE = ["python3", "-m", "compileall", "-qq", "-j2", "sandboxd"]


class Machine:
    """One machine; the object holds nothing that another process could not find too."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def named(cls, name: str) -> Machine:
        """Return the machine of that name, running or not."""
        if not name or not all(each.isalnum() or each in "-_." for each in name) or name[0] == ".":
            raise MachineError(f"cannot use {name!r} as a machine's name")
        return cls(cache_directory() / "machines" / name)

    @classmethod
    def all(cls) -> list[Machine]:
        """Return every machine that the cache knows, running or not."""
        return [cls(directory) for directory in sorted(cache_directory().glob("machines/*"))]

    def boot(self, image: Image, options: qemu.Options, *, seconds: float) -> None:
        """Start it and return once its agent answers. Raises MachineError; then it is gone."""
        if self.running():
            raise MachineError(f"cannot start {self.directory.name}: it is running already")
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self._process = qemu.start(image, self.directory, options)
        pid = self._process.pid
        state = {"pid": pid, "start_time": _start_time(pid)}
        (self.directory / "state.json").write_text(json.dumps(state))
        try:
            with self._channel(time.monotonic() + seconds):
                pass
        except BaseException:
            self.stop()
            raise

    def running(self) -> bool:
        """Tell whether its process lives."""
        with _opened(self._process_fd()) as fd:
            return fd >= 0

    def copy_in(self, tree: Path) -> dict[str, int]:
        """Make the machine's source directory equal to the checkout `tree`, and compile it."""
        names = source.files(tree)
        deadline = time.monotonic() + COPY_SECONDS
        with self._channel(time.monotonic() + HELLO_SECONDS) as channel:
            nonce = channel.request("unpack", deadline, into=recipe.SOURCE_DIRECTORY)
            writer = ChunkWriter(lambda data: channel.send(Kind.DATA, data, deadline), MAX_PAYLOAD)
            pack(writer, tree, names)
            writer.flush()
            channel.send(Kind.END, b"", deadline)
            done: dict[str, int] = channel.finish(nonce, deadline)
        if done["changed"]:
            self.run(_COMPILE, {}, seconds=COPY_SECONDS)
        return done

    def run(
        self,
        argv: list[str],
        environment: dict[str, str],
        *,
        seconds: float,
        take: Callable[[Frame], None] = pass_on,
    ) -> int:
        """Run a command, give its output to `take`, return its status.

        Raises DeadlinePassed (the command was killed) and MachineError (no status is known).
        """
        deadline = time.monotonic() + seconds
        with self._channel(time.monotonic() + HELLO_SECONDS) as channel:
            nonce = channel.request(
                "run",
                deadline,
                argv=argv,
                directory=recipe.SOURCE_DIRECTORY,
                environment={**recipe.COMMAND_ENVIRONMENT, **environment},
            )
            try:
                return int(channel.finish(nonce, deadline, take)["status"])
            except DeadlinePassed:
                self._kill(channel, nonce, take)
                raise DeadlinePassed(f"the command ran longer than {seconds:.0f} s") from None
            except KeyboardInterrupt:
                self._kill(channel, nonce, take)
                raise

    def fetch(self, directory: str, into: Path) -> None:
        """Make `into` equal to a directory of the machine."""
        deadline = time.monotonic() + COPY_SECONDS
        with self._channel(time.monotonic() + HELLO_SECONDS) as channel:
            nonce = channel.request("pack", deadline, directory=directory)
            frames = channel.frames(deadline)

            def chunk() -> bytes:
                frame = next(frames)
                if frame.kind is Kind.DONE:
                    raise MachineError(f"cannot fetch {directory}: {frame.payload.decode()}")
                return frame.payload if frame.kind is Kind.DATA else b""

            unpack(ChunkReader(chunk), into)
            channel.finish(nonce, deadline)

    def stop(self) -> None:
        """End its process at once; its logs stay."""
        with _opened(self._process_fd()) as fd:
            if fd >= 0:
                signal.pidfd_send_signal(fd, signal.SIGKILL)
                if not _has_ended(fd, END_SECONDS):
                    raise MachineError(f"cannot stop machine {self.directory.name}")
        if self._process is not None:
            self._process.wait(END_SECONDS)
        (self.directory / "state.json").unlink(missing_ok=True)
        (self.directory / qemu.OVERLAY).unlink(missing_ok=True)

    def remove(self) -> None:
        """End it and forget all it had."""
        self.stop()
        if self.directory.exists():
            shutil.rmtree(self.directory)

    @contextmanager
    def _channel(self, deadline: float) -> Iterator[Channel]:
        with _opened(self._process_fd()) as fd:
            if fd < 0:
                raise MachineDied(f"machine {self.directory.name} is not running")
            try:
                with connect(self.directory, fd, deadline) as channel:
                    yield channel
            except MachineDied as error:
                raise MachineDied(f"{error} ({qemu.last_words(self.directory)})") from error

    def _process_fd(self) -> int:
        try:
            state = json.loads((self.directory / "state.json").read_text())
            fd = os.pidfd_open(state["pid"])
        except (FileNotFoundError, ProcessLookupError):
            return -1
        if _has_ended(fd, 0) or _start_time(state["pid"]) != state["start_time"]:
            os.close(fd)
            return -1
        return fd

    def _kill(self, channel: Channel, nonce: str, take: Callable[[Frame], None]) -> None:
        deadline = time.monotonic() + KILL_SECONDS
        channel.send(Kind.KILL, b"", deadline)
        channel.finish(nonce, deadline, take)


@contextmanager
def _opened(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        if fd >= 0:
            os.close(fd)


def _has_ended(process_fd: int, seconds: float) -> bool:
    poller = select.poll()
    poller.register(process_fd, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def _start_time(pid: int) -> str:
    """Return field 22 of /proc/PID/stat; what comes before it may contain spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
