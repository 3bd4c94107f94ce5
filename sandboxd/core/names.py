# SPDX-License-Identifier: Apache-2.0
"""Ids and systemd unit names.

A dash in a slice's name nests (systemd.slice(5)), so an id has none. Sandboxes are spread over
256 buckets: PID 1's cost of a start grows with the siblings in one slice.
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
    """A fresh sandbox, execution or instance id: 12 characters of a-z2-7, 60 random bits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(12))


def is_id(text: str) -> bool:
    """Whether `text` has the form of an id."""
    return _ID.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether `text` may be an owner's name for a sandbox: never of an id's form."""
    return _NAME.fullmatch(text) is not None and not is_id(text)


@dataclass(frozen=True, slots=True)
class UnitNames:
    """Names of one daemon's units; `stem` is `sandboxd` for the service, else its own."""

    stem: str

    @classmethod
    def of_instance(cls, instance_id: str, *, is_service: bool) -> UnitNames:
        """The service owns `sandboxd.slice`; any other daemon has a top-level slice of its own."""
        return cls(SERVICE_STEM if is_service else f"{SERVICE_STEM}_{instance_id}")

    @property
    def is_service(self) -> bool:
        """Whether these are the names that a package's unit files have."""
        return self.stem == SERVICE_STEM

    @property
    def parent_slice(self) -> str:
        """The slice that carries the aggregate limit."""
        return f"{self.stem}.slice"

    @property
    def spawner_service(self) -> str:
        """The spawner's service, where the daemon starts it itself."""
        return f"{self.stem}-spawner.service"

    @property
    def supervisor_service(self) -> str:
        """The supervisor's service, where the daemon starts it itself."""
        return f"{self.stem}-supervisor.service"

    def bucket_slice(self, sandbox_id: str) -> str:
        """The slice between the parent and the sandbox's."""
        return f"{self.stem}-{_bucket(sandbox_id)}.slice"

    def sandbox_slice(self, sandbox_id: str) -> str:
        """The sandbox's slice."""
        return f"{self.stem}-{_bucket(sandbox_id)}-{sandbox_id}.slice"

    def execution_scope(self, sandbox_id: str, execution_id: str) -> str:
        """The execution's scope."""
        return f"{self.stem}-{sandbox_id}-{execution_id}.scope"

    def patterns(self) -> list[str]:
        """Globs that match every slice and scope of this daemon and of no other."""
        return [f"{self.stem}-*.slice", f"{self.stem}-*.scope"]


def _bucket(sandbox_id: str) -> str:
    return hashlib.sha256(sandbox_id.encode()).hexdigest()[:2]
