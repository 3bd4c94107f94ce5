# SPDX-License-Identifier: Apache-2.0
"""Client of the daemon; standard library only. See docs/client.md.

`Sandbox` blocks, `AsyncSandbox` has the same methods for asyncio. Each class is loaded at first
use, since sandboxctl needs neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandboxd.client.aio_sandbox import AsyncSandbox as AsyncSandbox
    from sandboxd.client.handle import AsyncHandle as AsyncHandle
    from sandboxd.client.handle import Handle as Handle
    from sandboxd.client.refusals import ConnectionLost as ConnectionLost
    from sandboxd.client.refusals import DaemonUnreachable as DaemonUnreachable
    from sandboxd.client.refusals import ServerTooOld as ServerTooOld
    from sandboxd.client.results import CommandFailed as CommandFailed
    from sandboxd.client.results import Entry as Entry
    from sandboxd.client.results import Output as Output
    from sandboxd.client.results import ReadFile as ReadFile
    from sandboxd.client.results import Result as Result
    from sandboxd.client.results import TimedOutput as TimedOutput
    from sandboxd.client.sandbox import Sandbox as Sandbox
    from sandboxd.errors import SandboxdError as SandboxdError

_HOME = {
    "AsyncHandle": "sandboxd.client.handle",
    "AsyncSandbox": "sandboxd.client.aio_sandbox",
    "CommandFailed": "sandboxd.client.results",
    "ConnectionLost": "sandboxd.client.refusals",
    "DaemonUnreachable": "sandboxd.client.refusals",
    "Entry": "sandboxd.client.results",
    "Handle": "sandboxd.client.handle",
    "Output": "sandboxd.client.results",
    "ReadFile": "sandboxd.client.results",
    "Result": "sandboxd.client.results",
    "Sandbox": "sandboxd.client.sandbox",
    "SandboxdError": "sandboxd.errors",
    "ServerTooOld": "sandboxd.client.refusals",
    "TimedOutput": "sandboxd.client.results",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines the name (PEP 562)."""
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # importlib.import_module costs the import of importlib.
    value = getattr(__import__(module, fromlist=[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
