# SPDX-License-Identifier: Apache-2.0
"""Locks of the state and the runtime directory, and the instance id.

Each directory belongs to one daemon at a time; the state directory names its instance for ever.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from sandboxd.core.names import is_id, new_id
from sandboxd.errors import ConfigError
from sandboxd.osutil.files import remove_file, write_whole
from sandboxd.osutil.locks import locked_file
from sandboxd.osutil.privileges import Privileges
from sandboxd.workspace.removal import remove_tree

_STATE_LOCK = "lock"
_RUNTIME_LOCK = "daemon.lock"
_INSTANCE = "instance"
_SPAWNER_SOCKET = "spawner.sock"
_TREES = ("sandboxes", "executions", "supervised", "keys")
_FILES = (
    _STATE_LOCK,
    _RUNTIME_LOCK,
    _INSTANCE,
    "draining",
    "history.sqlite",
    "history.sqlite-journal",
    "sandboxd.sock",
    _SPAWNER_SOCKET,
    "supervisor.sock",
    "notify",
    "log",
)

_log = logging.getLogger(__name__)


class Hold:
    """The hold of both directories. What it made goes at the end, unless `keep` was called.

    has_new_runtime: whether there was no runtime directory before.
    """

    def __init__(self, state_directory: str, runtime_directory: str) -> None:
        self._state = state_directory
        self._runtime = runtime_directory
        self.is_kept = False
        self.has_new_runtime = not os.path.lexists(runtime_directory)

    def keep(self) -> None:
        """Leave both directories as they are, and note that they belong together."""
        self.is_kept = True
        data = os.fsencode(f"{self._runtime}\n")
        path = os.path.join(self._state, _STATE_LOCK)
        try:
            with open(path, "r+b") as file:
                if file.read() != data:
                    file.seek(0)
                    file.write(data)
                    file.truncate()
        except OSError as exc:
            _log.warning("Cannot note the runtime directory in %s: %s", path, exc.strerror)


@contextmanager
def hold(state_directory: str, runtime_directory: str, privileges: Privileges) -> Iterator[Hold]:
    """Make both directories where missing, and hold their locks.

    Raises ConfigError where a directory cannot be made, or a second daemon has a lock.
    """
    held = Hold(state_directory, runtime_directory)
    # Both may be one directory.
    with (
        _taken(held, state_directory, 0o711, _STATE_LOCK, "state", "--state-dir", privileges),
        _taken(
            held, runtime_directory, 0o755, _RUNTIME_LOCK, "sockets", "--runtime-dir", privileges
        ),
    ):
        yield held


@contextmanager
def _taken(
    held: Hold, directory: str, mode: int, lock: str, purpose: str, option: str,
    privileges: Privileges,
) -> Iterator[None]:  # fmt: skip
    """Make and lock one directory; under the lock, take back what was made since."""
    path = os.path.join(directory, lock)
    missing = list(_missing(directory))
    with ExitStack() as stack:
        try:
            had_lock = _exists(path)
            os.makedirs(directory, mode=mode, exist_ok=True)
            stack.enter_context(locked_file(path, waits=False))
            there = set(os.listdir(directory))
        except BlockingIOError as exc:
            raise ConfigError(
                f"cannot use {directory} for {purpose}: another sandboxd uses it",
                hint=f"stop it, or name another {option}",
            ) from exc
        except OSError as exc:
            _remove_empty(missing)
            raise ConfigError(
                f"cannot use {directory} for {purpose}: {exc.filename}: {exc.strerror}",
                hint=f"name another {option}",
            ) from exc
        try:
            yield
        finally:
            if not held.is_kept:
                _remove_made(directory, privileges, but=there if had_lock else there - {lock})
                _remove_empty(missing)


def _missing(directory: str) -> Iterator[str]:
    """Yield the directory and all above that do not exist, the lowest first."""
    while not os.path.lexists(directory):
        yield directory
        directory = os.path.dirname(directory)


def _remove_empty(directories: Iterable[str]) -> None:
    for directory in directories:
        with suppress(OSError):
            os.rmdir(directory)


def is_here(state_directory: str, runtime_directory: str) -> bool:
    """Whether a sandboxd has ever used one of the directories. Raises ConfigError."""
    paths = [os.path.join(state_directory, name) for name in (_INSTANCE, _TREES[0])]
    paths += [os.path.join(runtime_directory, name) for name in (_RUNTIME_LOCK, _SPAWNER_SOCKET)]
    return any(map(_exists, paths))


def _exists(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as exc:
        raise ConfigError(f"cannot look for {path}: {exc.strerror}") from exc
    return True


def runtime_directory(state_directory: str) -> str | None:
    """Return the runtime directory of the last daemon on a state directory; None if unknown."""
    # Another user's tells nothing, and is refused later on.
    with suppress(FileNotFoundError, PermissionError):
        with open(os.path.join(state_directory, _STATE_LOCK), "rb") as file:
            return os.fsdecode(file.read()).strip() or None
    return None


def instance_id(state_directory: str) -> str:
    """Return the instance's id, made once for a state directory."""
    path = os.path.join(state_directory, _INSTANCE)
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
    for directory in (state_directory, runtime_directory):
        _remove_made(directory, privileges)
        _remove_empty([directory])


def _remove_made(directory: str, privileges: Privileges, *, but: Collection[str] = ()) -> None:
    for name in _TREES:
        if name not in but:
            remove_tree(os.path.join(directory, name), privileges)
    for name in _FILES:
        if name not in but:
            remove_file(os.path.join(directory, name))
