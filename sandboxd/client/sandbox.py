# SPDX-License-Identifier: Apache-2.0
"""The blocking client: a sandbox as an object."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self, overload

from sandboxd.client import bodies
from sandboxd.client.calls import Answer, Client, socket_path
from sandboxd.client.files import Files
from sandboxd.client.handle import Handle
from sandboxd.client.results import Result
from sandboxd.errors import NotFound


class Sandbox:
    """A sandbox of the daemon on this host. Made by `create`, `connect` and `list`.

    As a context manager it is released at the end, with all that runs in it. Methods raise what
    the daemon refuses with, as the classes in sandboxd.errors; sizes may be "512M", durations
    "90s", cores 1.5 or "150%".
    """

    def __init__(self, client: Client, answer: Answer) -> None:
        self._client = client
        self.id: str = answer["id"]
        self.name: str | None = answer["name"]
        self.files = Files(client, self.id)

    @classmethod
    def create(
        cls,
        name: str | None = None,
        *,
        limits: bodies.Limits | None = None,
        require: Sequence[str] | None = None,
        require_by: Literal["any", "kernel"] | None = None,
        isolation: bodies.Isolation | None = None,
        network: bodies.Network | None = None,
        rootfs: str | None = None,
        binds: Sequence[bodies.Bind] | None = None,
        env: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        timeout: bodies.Quantity | None = None,
        idle_timeout: bodies.Quantity | None = None,
        wait_for_capacity: float | None = None,
        socket: str | None = None,
    ) -> Self:
        """A new sandbox. timeout, idle_timeout: how long it lives, and how long unused.

        wait_for_capacity: for so many seconds ask again where there is no room for it now
        (CapacityExceeded, QuotaExceeded), as often as the daemon says. socket: the daemon's
        (default: $SANDBOXD_SOCKET, or the system service's).
        """
        body = bodies.given(
            name=name, limits=limits, require=require, require_by=require_by,
            isolation=isolation, network=network, rootfs=rootfs, binds=binds,
            env=env, metadata=metadata,
            timeout_seconds=timeout, idle_timeout_seconds=idle_timeout,
        )  # fmt: skip
        client = Client(socket_path(socket))
        return cls(client, client.create_sandbox(body, capacity_seconds=wait_for_capacity))

    @classmethod
    def once(
        cls,
        cmd: str | Sequence[str],
        *,
        files: Mapping[str, bodies.NewFile] | None = None,
        read_files: Sequence[str] = (),
        name: str | None = None,
        limits: bodies.Limits | None = None,
        require: Sequence[str] | None = None,
        require_by: Literal["any", "kernel"] | None = None,
        isolation: bodies.Isolation | None = None,
        network: bodies.Network | None = None,
        rootfs: str | None = None,
        binds: Sequence[bodies.Bind] | None = None,
        metadata: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: str | bytes | None = None,
        timeout: bodies.Quantity | None = None,
        merge_output: bool = False,
        kill_grace: bodies.Quantity | None = None,
        wait_for_capacity: float | None = None,
        check: bool = False,
        socket: str | None = None,
    ) -> Result:
        """Run one command in a sandbox of its own, which is released at its end; one request.

        files: by path, what is written before; (content, permission bits) where these are not to
        be 0644. read_files: paths that the result's `files` has after the end, whatever that was;
        4 MiB together. stdin: at most 1 MiB. timeout: of the command. The rest is as in `create`
        and `run`.
        """
        execution = bodies.execution(
            cmd, env=env, cwd=cwd, stdin=stdin, timeout=timeout, limits=limits,
            merge_output=merge_output, kill_grace=kill_grace,
        )  # fmt: skip
        body = bodies.once(
            execution, name=name, files=files, read_files=read_files, require=require,
            require_by=require_by, isolation=isolation, network=network, rootfs=rootfs,
            binds=binds, metadata=metadata,
        )  # fmt: skip
        client = Client(socket_path(socket))
        answer = client.run_once(body, capacity_seconds=wait_for_capacity)
        stdout = client.all_output(answer, "stdout")
        stderr = client.all_output(answer, "stderr")
        result = Result.of(answer, stdout, stderr, read_files)
        if check:
            result.check()
        return result

    @classmethod
    def connect(cls, ref: str, *, socket: str | None = None) -> Self:
        """The sandbox of this id or name. Raises SandboxNotFound."""
        client = Client(socket_path(socket))
        return cls(client, client.get_sandbox(ref))

    @classmethod
    def list(
        cls,
        *,
        state: str | None = None,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        socket: str | None = None,
    ) -> builtins.list[Self]:
        """Those that the caller may see, oldest first; without `state` released ones, too."""
        client = Client(socket_path(socket))
        found = client.list_sandboxes(**filters(state, name, metadata))
        return [cls(client, answer) for answer in found]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.kill()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name or self.id}>"

    def info(self) -> dict[str, Any]:
        """All about it as the API answers (docs/api.md)."""
        return self._client.get_sandbox(self.id)

    @overload
    def run(
        self,
        cmd: str | Sequence[str],
        *,
        background: Literal[True],
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bodies.Stdin | None = None,
        timeout: bodies.Quantity | None = None,
        limits: bodies.Limits | None = None,
        merge_output: bool = False,
        kill_grace: bodies.Quantity | None = None,
        tty: bodies.Terminal = False,
        wait_for_capacity: float | None = None,
    ) -> Handle: ...

    @overload
    def run(
        self,
        cmd: str | Sequence[str],
        *,
        background: Literal[False] = False,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: str | bytes | None = None,
        timeout: bodies.Quantity | None = None,
        limits: bodies.Limits | None = None,
        merge_output: bool = False,
        kill_grace: bodies.Quantity | None = None,
        tty: bodies.Terminal = False,
        wait_for_capacity: float | None = None,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        check: bool = False,
    ) -> Result: ...

    def run(
        self,
        cmd: str | Sequence[str],
        *,
        background: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        stdin: bodies.Stdin | None = None,
        timeout: bodies.Quantity | None = None,
        limits: bodies.Limits | None = None,
        merge_output: bool = False,
        kill_grace: bodies.Quantity | None = None,
        tty: bodies.Terminal = False,
        wait_for_capacity: float | None = None,
        on_stdout: Callable[[str], object] | None = None,
        on_stderr: Callable[[str], object] | None = None,
        check: bool = False,
    ) -> Result | Handle:
        """Run a command: a str by the shell, a sequence exactly as it is.

        background: return at once with a Handle. on_stdout, on_stderr: called with each piece of
        text as it is printed. check: raise CommandFailed unless it exits with 0. stdin: all of its
        input, of any size, or True, to write it by the Handle. tty: give it a terminal, of so many
        rows and columns; all it prints is stdout. wait_for_capacity: as in `create`. When this is
        left with an exception, such as KeyboardInterrupt, the command is killed.
        """
        body, rest = bodies.execution(
            cmd, env=env, cwd=cwd, stdin=stdin, timeout=timeout, limits=limits,
            merge_output=merge_output, kill_grace=kill_grace, tty=tty,
        )  # fmt: skip
        has_calls = on_stdout is not None or on_stderr is not None
        wait = bodies.first_wait(body, is_watched=background or has_calls)
        answer = self._client.start_execution(
            self.id, body, wait_seconds=wait, capacity_seconds=wait_for_capacity
        )
        handle = Handle(self._client, answer)
        if tty is not False and not background:
            # Nobody is there to type the end of what was not given.
            rest = rest or b""
        if rest is not None:
            handle.feed(rest)
        if background:
            return handle
        try:
            if has_calls:
                for output in handle:
                    call = on_stdout if output.stream == "stdout" else on_stderr
                    if call is not None and output.text:
                        call(output.text)
            result = handle.wait()
        except BaseException:
            handle.abandon()
            raise
        if check:
            result.check()
        return result

    def executions(self) -> builtins.list[Handle]:
        """All of it, ended ones included for the retention time."""
        found = self._client.list_executions(self.id)
        return [Handle(self._client, answer) for answer in found]

    def suspend(self) -> None:
        """Freeze every process in it."""
        self._client.suspend_sandbox(self.id)

    def resume(self) -> None:
        """Let them go on."""
        self._client.resume_sandbox(self.id)

    def update(
        self,
        *,
        limits: bodies.Limits | None = None,
        metadata: Mapping[str, str] | None = None,
        timeout: bodies.Quantity | None = None,
        idle_timeout: bodies.Quantity | None = None,
        force: bool = False,
    ) -> dict[str, Any]:
        """Change it live, running commands included; returns what `info` does.

        force: lower memory below what is used, which makes the kernel kill.
        """
        body = bodies.given(
            limits=limits, metadata=metadata, timeout_seconds=timeout,
            idle_timeout_seconds=idle_timeout, force=force or None,
        )  # fmt: skip
        return self._client.change_sandbox(self.id, body)

    def metrics(self) -> dict[str, Any]:
        """What it uses now, as the API answers (docs/api.md)."""
        return self._client.metrics(self.id)

    def kill(self) -> None:
        """Release it: returns once everything in it is gone. Releasing it twice is no error."""
        try:
            self._client.release_sandbox(self.id)
        except NotFound:
            # Released, and forgotten after the retention time.
            return


def filters(
    state: str | None, name: str | None, metadata: Mapping[str, str] | None
) -> dict[str, object]:
    """The query of a list."""
    wanted = {f"metadata.{key}": value for key, value in (metadata or {}).items()}
    return {**bodies.given(state=state, name=name), **wanted}
