# SPDX-License-Identifier: Apache-2.0
"""Locks of the state and the runtime directory, and the instance id.

Each directory belongs to one daemon at a time; the state directory names its instance for ever.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from sandboxd.core.names import is_id, new_id
from sandboxd.errors import ConfigError
from sandboxd.osutil.files import remove_file, write_whole
from sandboxd.osutil.locks import locked, open_lock
from sandboxd.osutil.privileges import Privileges
from sandboxd.workspace.removal import remove_tree

_RUNTIME_LOCK = "daemon.lock"


@contextmanager
def lock(state_directory: str, runtime_directory: str) -> Iterator[None]:
    """Hold the locks of both directories. Raises ConfigError where a second daemon has a lock."""
    # Both may be one directory.
    with _locked(state_directory, "lock", "state", "--state-dir"):
        with _locked(runtime_directory, _RUNTIME_LOCK, "sockets", "--runtime-dir"):
            yield


@contextmanager
def _locked(directory: str, name: str, purpose: str, option: str) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(open_lock(os.path.join(directory, name)), waits=False))
        except BlockingIOError as exc:
            raise ConfigError(
                f"cannot use {directory} for {purpose}: another sandboxd uses it",
                hint=f"stop it, or name another {option}",
            ) from exc
        yield


def instance_id(state_directory: str) -> str:
    """Return the instance's id, made once for a state directory."""
    path = os.path.join(state_directory, "instance")
    with suppress(FileNotFoundError), open(path, encoding="ascii") as file:
        text = file.read().strip()
        if is_id(text):
            return text
    made = new_id()
    write_whole(path, f"{made}\n".encode())
    return made


def remove_directories(
    state_directory: str, runtime_directory: str, privileges: Privileges
) -> None:
    """Remove all that a daemon makes in both directories, then the directories where empty."""
    for name in ("sandboxes", "executions", "supervised", "keys"):
        for directory in (state_directory, runtime_directory):
            remove_tree(os.path.join(directory, name), privileges)
    made = [
        "lock",
        _RUNTIME_LOCK,
        "instance",
        "draining",
        "history.sqlite",
        "history.sqlite-journal",
        "sandboxd.sock",
        "spawner.sock",
        "supervisor.sock",
        "notify",
        "log",
    ]
    for directory in (state_directory, runtime_directory):
        for name in made:
            remove_file(os.path.join(directory, name))
        with suppress(OSError):
            os.rmdir(directory)
