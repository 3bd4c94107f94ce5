# SPDX-License-Identifier: Apache-2.0
"""A sandbox as an object: the flows of both clients, and the blocking client."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, Self, TypeVar, overload

from sandboxd.client import bodies, routes
from sandboxd.client.blocking import BlockingWaits, Maker, blocking, finished
from sandboxd.client.calls import Flows, JsonObject, socket_path
from sandboxd.client.files import AsyncFiles, Files
from sandboxd.client.handle import AsyncHandle, Handle
from sandboxd.client.results import Result
from sandboxd.errors import NotFound

H = TypeVar("H")


class SandboxFlow(Generic[H]):
    """Flows of a sandbox object. H: the class of the client's handles."""

    def __init__(self, client: Flows, answer: JsonObject) -> None:
        self._client = client
        self.id: str = answer["id"]
        self.name: str | None = answer["name"]
        self.files = AsyncFiles(client, self.id)

    @classmethod
    async def create(
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
        """Create a sandbox.

        timeout, idle_timeout: how long the sandbox lives, and how long unused. wait_for_capacity:
        seconds to repeat a request refused for lack of room (CapacityExceeded, QuotaExceeded), at
        the daemon's pace. socket: the daemon's socket (default: $SANDBOXD_SOCKET, or the system
        service's).
        """
        body = bodies.given(
            name=name, limits=limits, require=require, require_by=require_by,
            isolation=isolation, network=network, rootfs=rootfs, binds=binds,
            env=env, metadata=metadata,
            timeout_seconds=timeout, idle_timeout_seconds=idle_timeout,
        )  # fmt: skip
        client = cls._flows(socket)
        request = routes.create_sandbox(body)
        return cls(client, await client.ask_patiently(request, wait_for_capacity))

    @classmethod
    async def once(
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
        """Run a command in a new sandbox, released when the command ends; a single request.

        files: content to write before, by path; (content, permission bits) for bits other than
        0644. read_files: paths for the result's `files`, read after any end of the command; 4 MiB
        together. stdin: at most 1 MiB. timeout: of the command. The other arguments are as in
        `create` and `run`.
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
        client = cls._flows(socket)
        answer = await client.run_once(body, capacity_seconds=wait_for_capacity)
        stdout = await client.all_output(answer, "stdout")
        stderr = await client.all_output(answer, "stderr")
        result = Result.of(answer, stdout, stderr, read_files)
        if check:
            result.check()
        return result

    @classmethod
    async def connect(cls, ref: str, *, socket: str | None = None) -> Self:
        """Return the sandbox of this id or name. Raises SandboxNotFound."""
        client = cls._flows(socket)
        return cls(client, await client.ask(routes.get_sandbox(ref)))

    @classmethod
    async def list(
        cls,
        *,
        state: str | None = None,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        socket: str | None = None,
    ) -> builtins.list[Self]:
        """List sandboxes that the caller may see, oldest first; of any state without `state`."""
        client = cls._flows(socket)
        query = filters(state, name, metadata)
        found = client.pages("sandboxes", lambda cursor: routes.list_sandboxes(query, cursor))
        return [cls(client, answer) async for answer in found]

    @staticmethod
    def _flows(socket: str | None) -> Flows:
        """Return the flows to a daemon's socket, with the waits of this client."""
        raise NotImplementedError

    @staticmethod
    def _shown(handle: AsyncHandle) -> H:
        """Return the handle in the class of this client."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name or self.id}>"

    async def info(self) -> dict[str, Any]:
        """Return the sandbox as the API answers (docs/api.md)."""
        answer: JsonObject = await self._client.ask(routes.get_sandbox(self.id))
        return answer

    @overload
    async def run(
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
    ) -> H: ...

    @overload
    async def run(
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

    async def run(
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
    ) -> Result | H:
        """Run a command: a str by the shell, a sequence exactly as given.

        background: return at once with a handle. on_stdout, on_stderr: called with each piece of
        text on arrival; AsyncSandbox awaits a returned awaitable. check: raise CommandFailed unless
        the command exits with 0. stdin: all of the input, of any size, or True, to write input by
        the handle. tty: give the command a terminal, of so many rows and columns; all output is
        stdout. wait_for_capacity: as in `create`. An exception from here, for example
        KeyboardInterrupt or CancelledError, kills the command.
        """
        body, rest = bodies.execution(
            cmd, env=env, cwd=cwd, stdin=stdin, timeout=timeout, limits=limits,
            merge_output=merge_output, kill_grace=kill_grace, tty=tty,
        )  # fmt: skip
        has_calls = on_stdout is not None or on_stderr is not None
        wait = bodies.first_wait(body, is_watched=background or has_calls)
        answer = await self._client.start_execution(
            self.id, body, wait_seconds=wait, capacity_seconds=wait_for_capacity
        )
        handle = AsyncHandle(self._client, answer)
        if tty is not False and not background:
            # No user types the end of input on this terminal.
            rest = rest or b""
        if rest is not None:
            handle.feed(rest)
        if background:
            return self._shown(handle)
        try:
            if has_calls:
                async for output in handle:
                    call = on_stdout if output.stream == "stdout" else on_stderr
                    if call is not None and output.text:
                        await self._client.waits.called(call(output.text))
            result = await handle.wait()
        except BaseException:
            await handle.abandon()
            raise
        if check:
            result.check()
        return result

    async def executions(self) -> builtins.list[H]:
        """List all executions; ended executions are listed for the retention time."""
        found = self._client.pages(
            "executions", lambda cursor: routes.list_executions(self.id, {}, cursor)
        )
        return [self._shown(AsyncHandle(self._client, answer)) async for answer in found]

    async def suspend(self) -> None:
        """Freeze every process in the sandbox."""
        await self._client.ask(routes.suspend_sandbox(self.id))

    async def resume(self) -> None:
        """Thaw every process in the sandbox."""
        await self._client.ask(routes.resume_sandbox(self.id))

    async def update(
        self,
        *,
        limits: bodies.Limits | None = None,
        metadata: Mapping[str, str] | None = None,
        timeout: bodies.Quantity | None = None,
        idle_timeout: bodies.Quantity | None = None,
        force: bool = False,
    ) -> dict[str, Any]:
        """Change the sandbox live, running commands included; return the same as `info`.

        force: lower memory below the current usage; the kernel then kills.
        """
        body = bodies.given(
            limits=limits, metadata=metadata, timeout_seconds=timeout,
            idle_timeout_seconds=idle_timeout, force=force or None,
        )  # fmt: skip
        answer: JsonObject = await self._client.ask(routes.change_sandbox(self.id, body))
        return answer

    async def metrics(self) -> dict[str, Any]:
        """Return the sandbox's current usage as the API answers (docs/api.md)."""
        answer: dict[str, Any] = await self._client.ask(routes.sandbox_metrics(self.id))
        return answer

    async def kill(self) -> None:
        """Release the sandbox; return after all processes ended. A second release is no error."""
        try:
            await self._client.ask(routes.release_sandbox(self.id))
        except NotFound:
            # Released, and its record removed after the retention time.
            return


class _Flow(SandboxFlow[Handle]):
    @staticmethod
    def _flows(socket: str | None) -> Flows:
        return Flows(socket_path(socket), BlockingWaits())

    @staticmethod
    def _shown(handle: AsyncHandle) -> Handle:
        return Handle(handle)


class Sandbox:
    """A sandbox of the daemon on this host, made by `create`, `connect` or `list`.

    As a context manager the sandbox is released at the end, with all programs inside. Methods raise
    the daemon's refusals as classes of sandboxd.errors. Sizes may be "512M", durations "90s", cores
    1.5 or "150%".
    """

    def __init__(self, flow: SandboxFlow[Handle]) -> None:
        self._flow = flow
        self.id = flow.id
        self.name = flow.name
        self.files = Files(flow.files)

    create = Maker(_Flow.create)
    once = staticmethod(finished(_Flow.once))
    connect = Maker(_Flow.connect)

    @classmethod
    def list(
        cls,
        *,
        state: str | None = None,
        name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        socket: str | None = None,
    ) -> builtins.list[Self]:
        """List sandboxes that the caller may see, oldest first; of any state without `state`."""
        found = finished(_Flow.list)(state=state, name=name, metadata=metadata, socket=socket)
        return [cls(flow) for flow in found]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.kill()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name or self.id}>"

    info = blocking(_Flow.info)
    run = blocking(_Flow.run)
    executions = blocking(_Flow.executions)
    suspend = blocking(_Flow.suspend)
    resume = blocking(_Flow.resume)
    update = blocking(_Flow.update)
    metrics = blocking(_Flow.metrics)
    kill = blocking(_Flow.kill)


def filters(
    state: str | None, name: str | None, metadata: Mapping[str, str] | None
) -> dict[str, object]:
    """Return the query of a list."""
    wanted = {f"metadata.{key}": value for key, value in (metadata or {}).items()}
    return {**bodies.given(state=state, name=name), **wanted}
