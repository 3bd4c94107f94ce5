# SPDX-License-Identifier: Apache-2.0
"""Ids and systemd unit names.

A dash in a slice's name nests (systemd.slice(5)), so an id has none. Sandboxes are spread over 256
buckets: PID 1's cost of a start grows with the siblings in one slice.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
ID_PATTERN = r"^[a-z2-7]{12}$"
NAME_PATTERN = r"^[a-z][a-z0-9-]{0,62}$"
_ID = re.compile(r"[a-z2-7]{12}", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9-]{0,62}", re.ASCII)

SERVICE_STEM = "sandboxd"


def new_id() -> str:
    """Return a random id: 12 characters of a-z2-7, 60 random bits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(12))


def is_id(text: str) -> bool:
    """Return whether `text` has the form of an id."""
    return _ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Return whether `text` is a valid sandbox name: never of the form of an id."""
    return _NAME.fullmatch(text) is not None and not is_id(text)


@dataclass(frozen=True, slots=True)
class UnitNames:
    """Unit names of a daemon. stem: `sandboxd` for the service, else unique per instance."""

    stem: str

    @classmethod
    def of_instance(cls, instance_id: str, *, is_service: bool) -> UnitNames:
        """Return the names; a daemon apart from the service has a top-level slice per instance."""
        return cls(SERVICE_STEM if is_service else f"{SERVICE_STEM}_{instance_id}")

    @property
    def is_service(self) -> bool:
        """Whether the names equal the names in the package's unit files."""
        return self.stem == SERVICE_STEM

    @property
    def parent_slice(self) -> str:
        """The slice with the aggregate limits."""
        return f"{self.stem}.slice"

    @property
    def spawner_service(self) -> str:
        """The spawner's unit, where the daemon starts the spawner."""
        return f"{self.stem}-spawner.service"

    @property
    def supervisor_service(self) -> str:
        """The supervisor's unit, where the daemon starts the supervisor."""
        return f"{self.stem}-supervisor.service"

    def bucket_slice(self, sandbox_id: str) -> str:
        """Return the slice between the parent slice and the sandbox's slice."""
        return f"{self.stem}-{_bucket(sandbox_id)}.slice"

    def sandbox_slice(self, sandbox_id: str) -> str:
        """Return the sandbox's slice."""
        return f"{self.stem}-{_bucket(sandbox_id)}-{sandbox_id}.slice"

    def execution_scope(self, sandbox_id: str, execution_id: str) -> str:
        """Return the execution's scope."""
        return f"{self.stem}-{sandbox_id}-{execution_id}.scope"

    def patterns(self) -> list[str]:
        """Return globs that match the slices and scopes of this daemon alone."""
        return [f"{self.stem}-*.slice", f"{self.stem}-*.scope"]


def _bucket(sandbox_id: str) -> str:
    return hashlib.sha256(sandbox_id.encode()).hexdigest()[:2]
