# SPDX-License-Identifier: Apache-2.0
"""Idempotency keys and the first answers to them on disk; fits api.replays.Keys.

One file per key below <state-dir>/keys: a line of JSON, then the answer's body. At start, a key
without an answer belongs to a request that an earlier daemon did not finish.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from sandboxd.engine.ports.store import KeptKey
from sandboxd.errors import QuotaExceeded, host_lacks
from sandboxd.osutil.files import remove_file, write_whole

_log = logging.getLogger(__name__)
KEPT_SECONDS = 600.0
# Longer than the longest execution, so that a late retry never starts the command again.
UNANSWERED_SECONDS = 8 * 86400.0
MAX_KEYS = 10_000
MAX_BYTES = 256 << 20
_MAX_HEAD_BYTES = 4096
_VERSION = 1


class DiskKeys:
    """All keys of a daemon, for KEPT_SECONDS after the answer, by the clock `now`. `open` first."""

    def __init__(
        self,
        state_directory: str,
        *,
        now: Callable[[], float] = time.time,
        max_keys: int = MAX_KEYS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """max_keys, max_bytes: bounds for one caller."""
        self._directory = os.path.join(state_directory, "keys")
        self._now = now
        self._max_keys = max_keys
        self._max_bytes = max_bytes
        self._keys: dict[int, dict[str, KeptKey]] = {}

    def open(self) -> None:
        """Read the keys that an earlier daemon kept; remove old and unreadable files."""
        os.makedirs(self._directory, mode=0o700, exist_ok=True)
        for name in sorted(os.listdir(self._directory)):
            path = os.path.join(self._directory, name)
            try:
                key = _read(path)
            except (OSError, ValueError, KeyError, TypeError) as exc:
                _log.warning("Cannot read %s: %s; removed", path, exc)
                remove_file(path)
                continue
            self._keys.setdefault(key.uid, {})[key.name] = key
        for uid in list(self._keys):
            self._forget_old(uid)

    def find(self, uid: int, key: str) -> KeptKey | None:
        found = self._keys.get(uid, {}).get(_name(key))
        return None if found is None or self._is_old(found) else found

    async def begin(self, uid: int, key: str, fingerprint: str, request_id: str) -> KeptKey:
        self._forget_old(uid)
        keys = self._keys.setdefault(uid, {})
        kept_bytes = sum(one.size_bytes for one in keys.values())
        if len(keys) >= self._max_keys or kept_bytes >= self._max_bytes:
            raise QuotaExceeded(
                f"cannot keep another Idempotency-Key: {len(keys)} keys and {kept_bytes} bytes of "
                f"answers are kept for uid {uid}",
                hint=f"keys are kept for {KEPT_SECONDS:g} seconds; send some requests without one",
                details={"quota": "idempotency_keys", "maximum": self._max_keys,
                         "used": len(keys), "maximum_bytes": self._max_bytes,
                         "used_bytes": kept_bytes},
            )  # fmt: skip
        begun = KeptKey(uid, _name(key), fingerprint, request_id, self._now())
        keys[begun.name] = begun
        try:
            await self._write(begun, b"")
        except BaseException:
            self._forget(begun)
            raise
        return begun

    async def keep(self, key: KeptKey, status: int, body: bytes) -> None:
        answered = replace(key, status=status, size_bytes=len(body), at=self._now())
        await self._write(answered, body)
        if key.name in self._keys.get(key.uid, {}):
            self._keys[key.uid][key.name] = answered

    async def forget(self, key: KeptKey) -> None:
        self._forget(key)

    async def body(self, key: KeptKey) -> bytes | None:
        return await asyncio.to_thread(_read_body, self._path(key))

    def _path(self, key: KeptKey) -> str:
        return os.path.join(self._directory, f"{key.uid}-{key.name}")

    async def _write(self, key: KeptKey, body: bytes) -> None:
        await asyncio.to_thread(_write, self._path(key), key, body)

    def _is_old(self, key: KeptKey) -> bool:
        kept = UNANSWERED_SECONDS if key.status is None else KEPT_SECONDS
        return self._now() - key.at > kept

    def _forget_old(self, uid: int) -> None:
        for key in [one for one in self._keys.get(uid, {}).values() if self._is_old(one)]:
            self._forget(key)

    def _forget(self, key: KeptKey) -> None:
        keys = self._keys.get(key.uid, {})
        keys.pop(key.name, None)
        if not keys:
            self._keys.pop(key.uid, None)
        remove_file(self._path(key))


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:40]


def _write(path: str, key: KeptKey, body: bytes) -> None:
    head = json.dumps({"version": _VERSION, **asdict(key)}, separators=(",", ":"))
    try:
        write_whole(path, head.encode() + b"\n" + body)
    except OSError as exc:
        raise host_lacks("cannot keep an Idempotency-Key", exc, path) from exc


def _read(path: str) -> KeptKey:
    with open(path, "rb") as file:
        head: dict[str, Any] = json.loads(file.readline(_MAX_HEAD_BYTES))
        if head.pop("version") != _VERSION:
            raise ValueError("another version's")
    key = KeptKey(**head)
    if os.path.basename(path) != f"{key.uid}-{key.name}":
        raise ValueError("not under its own name")
    return key


def _read_body(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            file.readline(_MAX_HEAD_BYTES)
            return file.read()
    except OSError as exc:
        _log.error("Cannot read %s: %s", path, exc)
        return None
